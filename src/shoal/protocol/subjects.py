"""Every subject, stream and consumer name of the shared queue, in one place. Pure.

work.<pool>.<priority>.<line>[.<class>]   jobs, kept in the stream until they are acknowledged
hint.<pool>                               "there is work": a line that was quiet got a job
served.<pool>.<line>                      how far a node that pulls has served the classes of a line
heads.<pool>                              how far a node that pulls from several lines has served which of them
bell.<pool>.<priority>.<line>[.<class>]   a job came: said by the queue server to nodes that wait on several lines
answer.<gateway>                          answers, and what nodes say about the jobs they hold
accepted.<gateway>.<number>               whether the queue server took a job
node.<node>                               cancellations, to the node that holds the job
pulled.<node>.<number>                    jobs on their way to one pull
status.<pool>.<node>                      what a node tells of itself
notes.<reader>                            the board's notes, as they stand when a reader comes
$KV.<bucket>.<key>                        notes that are put up, kept in the stream KV_<bucket>
"""

import hashlib
import re

from shoal.protocol.envelope import Priority

PRIORITIES: tuple[Priority, ...] = ("interactive", "batch")
_PLAIN = re.compile(r"[A-Za-z0-9-]")
_ESCAPE = re.compile(r"_([0-9a-f]{2})")
_LONGEST_CONSUMER = 200
"""The server takes names of at most 255 bytes."""


def token(name: str) -> str:
    """Any name as one part of a subject: letters, digits and `-` as they are, other bytes as `_` and two digits.

    No two names give the same token; `name_of` turns it back.
    """
    return "".join(
        char if _PLAIN.fullmatch(char) else "".join(f"_{byte:02x}" for byte in char.encode()) for char in name
    )


def name_of(token: str) -> str:
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), token)
    return plain.encode("latin-1").decode(errors="replace")


def stream(pool: str) -> str:
    return f"SHOAL_{token(pool)}"


def pool_of(stream: str) -> str:
    """ "" for a stream that is no pool's."""
    return name_of(stream.removeprefix("SHOAL_")) if stream.startswith("SHOAL_") else ""


def work(pool: str, priority: Priority, line: str, size_class: str = "") -> str:
    subject = f"work.{token(pool)}.{priority}.{token(line)}"
    return f"{subject}.{token(size_class)}" if size_class else subject


def all_work(pool: str) -> str:
    return f"work.{token(pool)}.>"


def line_of(subject: str) -> str:
    return name_of(subject.split(".")[3])


def class_of(subject: str) -> str:
    parts = subject.split(".")
    return name_of(parts[4]) if len(parts) > 4 else ""


def priority_of(subject: str) -> Priority:
    return "batch" if subject.split(".")[2] == "batch" else "interactive"


def consumer(priority: Priority, line: str, size_class: str = "") -> str:
    """The durable consumer that all nodes share for one priority and class of a line."""
    name = f"{priority}{size_class}-{token(line)}"
    if len(name) <= _LONGEST_CONSUMER:
        return name
    return f"{priority}{size_class}-{hashlib.sha256(line.encode()).hexdigest()}"


def hint(pool: str) -> str:
    return f"hint.{token(pool)}"


def served(pool: str, line: str) -> str:
    return f"served.{token(pool)}.{token(line)}"


def heads(pool: str) -> str:
    return f"heads.{token(pool)}"


def bells(pool: str) -> str:
    """Where the queue server says the rest of each job's own subject."""
    return f"bell.{token(pool)}.>"


def bell(pool: str, line: str) -> str:
    """Of a line's interactive jobs."""
    return f"bell.{token(pool)}.interactive.{token(line)}"


def bells_of(pool: str, line: str) -> tuple[str, str]:
    """Of all its jobs, without and with a class."""
    plain = f"bell.{token(pool)}.*.{token(line)}"
    return plain, f"{plain}.*"


def served_line(subject: str) -> str:
    return name_of(subject.split(".")[2])


def answer(gateway: str) -> str:
    return f"answer.{gateway}"


def accepted(gateway: str, number: int | str) -> str:
    return f"accepted.{gateway}.{number}"


def node(node: str) -> str:
    return f"node.{node}"


def pulled(node: str, number: int | str) -> str:
    return f"pulled.{node}.{number}"


def gone(node: str, gateway: str) -> str:
    """Where the queue server tells a node that a gateway it answered is no longer there."""
    return f"gone.{node}.{gateway}"


def status(pool: str, node: str) -> str:
    return f"status.{token(pool)}.{node if node == '*' else token(node)}"


def bucket(pool: str) -> str:
    """The key-value bucket of a pool's board. NATS' own tools read it."""
    return f"SHOAL_{token(pool)}_board"


def notes_stream(pool: str) -> str:
    return f"KV_{bucket(pool)}"


def note(pool: str, key: str) -> str:
    return f"$KV.{bucket(pool)}.{token(key)}"


def all_notes(pool: str) -> str:
    return f"$KV.{bucket(pool)}.>"


def notes(reader: str) -> str:
    return f"notes.{reader}"


def ignored() -> str:
    """The reply subject of requests whose answer nobody reads."""
    return "ignored"
