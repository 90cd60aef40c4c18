"""A file in parts: the flow is driven by hand against bytes in memory, on a clock that only moves when told."""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from shoal.catalog.manifests import File
from shoal.client.errors import ServerUnreachable
from shoal.client.flow import ConnectionFailed, Outcome, Received, Send, Sleep, Terms
from shoal.client.uploading import MOST_LOSSES, Sending, send
from shoal.protocol.errors import Conflict, InvalidInput, RequestTimeout

MIB = 1024 * 1024
LOST = ConnectionFailed("lost", "it broke")


class Receiver:
    """As much of a server as receives one file. `trouble` says what to do with each part instead: "lost" before it
    came, "late" after, "slow" takes long, "408"; then all goes well.
    """

    def __init__(self, size: int, here: bytes = b"", trouble: Iterable[str] = (), takes_s: float = 0.1) -> None:
        self.size, self.got, self.trouble, self.takes_s = size, bytearray(here), list(trouble), takes_s
        self.clock = 0.0
        self.parts: list[tuple[int, int]] = []
        self.slept_s = 0.0
        self.sleeps: list[Sleep] = []

    def answer(self, action: Send) -> Outcome:
        request = action.request
        offset = int(re.search(r"offset=(\d+)", request.path)[1])
        assert f"size={self.size}" in request.path
        what = self.trouble.pop(0) if self.trouble else ""
        self.parts.append((offset, len(request.body)))
        self.clock += self.takes_s if what != "slow" else 20.0
        if what == "lost":
            return LOST
        if what == "408":
            return Received(408, {"x-sie-error-code": "REQUEST_TIMEOUT"}, b"{}")
        if offset != len(self.got):
            fields = {"detail": {"code": "CONFLICT", "message": "not next", "offset": len(self.got)}}
            return Received(409, {}, json.dumps(fields).encode())
        self.got += request.body
        return LOST if what == "late" else Received(200, {}, json.dumps({"offset": len(self.got)}).encode())

    def drive(self, place: Path, offset: int = 0, most_bytes: int = 8 * MIB) -> list[int]:
        file = File("model.safetensors", hashlib.sha256(place.read_bytes()).hexdigest(), self.size)
        terms = Terms(base_url="http://here", now=lambda: self.clock, chance=lambda: 0.5)
        told: list[int] = []
        flow, outcome = send(terms, Sending(file, place, most_bytes), offset, told.append), None
        try:
            while True:
                action = flow.send(outcome)
                if isinstance(action, Sleep):
                    self.slept_s += action.seconds
                    self.sleeps.append(action)
                    outcome = None
                else:
                    outcome = self.answer(action)
        except StopIteration:
            return told


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(range(256)) * (20 * MIB // 256) + b"end")
    return path


def test_a_file_arrives_whole_in_parts_that_grow_while_they_go_quickly(place: Path) -> None:
    receiver = Receiver(place.stat().st_size)
    told = receiver.drive(place)
    assert receiver.got == place.read_bytes()
    assert [size for _, size in receiver.parts[:4]] == [MIB, 2 * MIB, 4 * MIB, 8 * MIB]
    assert told == sorted(told)
    assert told[-1] == receiver.size


def test_no_part_is_longer_than_the_server_takes(place: Path) -> None:
    receiver = Receiver(place.stat().st_size)
    receiver.drive(place, most_bytes=100_000)
    assert max(size for _, size in receiver.parts) == 100_000
    assert receiver.got == place.read_bytes()


def test_parts_shrink_where_they_are_slow_or_do_not_arrive_in_time(place: Path) -> None:
    receiver = Receiver(place.stat().st_size, trouble=["slow", "408", "408"], takes_s=2.0)
    receiver.drive(place)
    assert [size for _, size in receiver.parts[:4]] == [MIB, MIB // 2, MIB // 8, 64 * 1024]
    assert receiver.got == place.read_bytes()


def test_what_was_here_already_is_not_sent_again(place: Path) -> None:
    here = place.read_bytes()[: 7 * MIB]
    receiver = Receiver(place.stat().st_size, here)
    receiver.drive(place, offset=7 * MIB)
    assert receiver.parts[0][0] == 7 * MIB
    assert receiver.got == place.read_bytes()


@pytest.mark.parametrize("here", [0, 3 * MIB])
def test_a_server_that_has_more_or_less_than_we_thought_is_believed(place: Path, here: int) -> None:
    receiver = Receiver(place.stat().st_size, place.read_bytes()[:here])
    receiver.drive(place, offset=2 * MIB)
    assert receiver.parts[1][0] == here
    assert receiver.got == place.read_bytes()


def test_a_part_whose_answer_was_lost_is_not_sent_twice_over(place: Path) -> None:
    receiver = Receiver(place.stat().st_size, trouble=["late"])
    receiver.drive(place)
    assert receiver.got == place.read_bytes()


def test_connections_that_break_now_and_then_end_nothing(place: Path) -> None:
    receiver = Receiver(place.stat().st_size, trouble=["lost", "lost", "late", ""] * 12)
    receiver.drive(place, most_bytes=MIB)
    assert receiver.got == place.read_bytes()
    assert receiver.slept_s > 0


@pytest.mark.parametrize(("what", "kind"), [("lost", ServerUnreachable), ("408", RequestTimeout)])
def test_where_nothing_arrives_any_more_it_gives_up(place: Path, what: str, kind: type[Exception]) -> None:
    receiver = Receiver(place.stat().st_size, trouble=[what] * 1000)
    with pytest.raises(kind):
        receiver.drive(place)
    assert len(receiver.parts) <= 2 * (MOST_LOSSES + 1)


def test_a_server_that_wants_the_same_part_for_ever_is_left(place: Path) -> None:
    receiver = Receiver(place.stat().st_size)
    receiver.answer = lambda action: (  # type: ignore[method-assign]
        receiver.parts.append((0, 0)) or Received(409, {}, b'{"detail": {"code": "CONFLICT", "offset": 0}}')
    )
    with pytest.raises(Conflict):
        receiver.drive(place)
    assert len(receiver.parts) == MOST_LOSSES + 1


def test_a_file_that_became_shorter_is_said(place: Path) -> None:
    receiver = Receiver(place.stat().st_size + 10)
    with pytest.raises(InvalidInput, match="was changed while it was sent"):
        receiver.drive(place)


def test_a_very_long_file_has_parts_long_enough_to_be_counted() -> None:
    sending = Sending(File("m", "ab" * 32, 10_000_000_000), Path("m"), 8 * MIB)
    assert 10_000_000_000 / sending.least_bytes < 4096


def test_each_pause_says_what_went_wrong_and_for_how_long_it_is_tried(place: Path) -> None:
    receiver = Receiver(place.stat().st_size, trouble=["lost"] * 6)
    receiver.drive(place)
    of_parts = [pause for pause in receiver.sleeps if isinstance(pause.after, ServerUnreachable)]
    assert len(of_parts) == 3, "each part is sent twice before it counts as lost"
    left = [pause.most_s for pause in of_parts]
    assert left == sorted(left, reverse=True)
    assert sum(pause.seconds for pause in of_parts) < left[0]
