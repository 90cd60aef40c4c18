"""What a gateway asks of a node before a push is believed, and what the node answers: the job `prove`, as JSON.

It waits in a line that no model can be called after. The files are in the object store, the message names them.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from shoal.catalog import Card
from shoal.protocol.errors import Fault, InternalError, InvalidInput, ShoalError, from_fault
from shoal.protocol.facts import Facts

LINE = "shoal:push"
TASK = "prove"
MOST_ROWS = 256
MOST_VALUES = 1_000_000
"""Of one row: some thousand tokens of a model with a vector each."""
MAY_SAY = frozenset(
    ("activation", "default_prompt", "kinds", "labels", "lowercase", "matryoshka", "max_tokens", "normalize")
) | {"pooling", "prompts", "tasks"}
"""Which facts whoever pushes a model may state. What names files, or chooses the code that reads them, is only
ever read from the files themselves: who pushes is not who runs the nodes."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A text, or a pair of them, and what whoever pushes a model says that it makes of it.

    `values` is its vector [dims] of an encoder; its score, or one a label, of a cross-encoder; its vectors one
    after the other, [tokens × dims], of a model with one a token; with `indices` [n] the weights of those words.
    `prompt` names one of the model's prompts; "" is the one that it uses where none is named.
    """

    text: str
    values: Annotated[list[float], msgspec.Meta(max_length=MOST_VALUES)]
    pair: str | None = None
    indices: Annotated[list[int], msgspec.Meta(max_length=MOST_VALUES)] | None = None
    prompt: str = ""


class Prove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`digest` names the artifact, `base` the model that an adapter is for, as it was asked for. `facts` are what
    the files do not say, as on a card. `objects` is the id of the object store (catalog.identity)."""

    name: str
    digest: str
    base: str = ""
    facts: dict[str, object] = {}
    objects: str = ""
    reference: tuple[Row, ...] = ()


class Proved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the artifact is. `base` is the base as nodes know it, and `base_digest` its files' digest.

    `nearest` is the worst of the `rows_compared` with the reference, 1 for equal; None where there were none.
    """

    card: Card
    facts: Facts
    size_bytes: int
    base: str = ""
    base_digest: str = ""
    rows_compared: int = 0
    nearest: float | None = None
    node: str = ""


def check_facts(said: Mapping[str, object]) -> None:
    """Raises InvalidInput, naming what may be said."""
    if wrong := sorted(said.keys() - MAY_SAY):
        raise InvalidInput(
            f"{wrong[0][:100]!r} cannot be said with a push, only by the model's files; what can be: "
            f"{', '.join(sorted(MAY_SAY))}",
            param="facts",
        )


_encode = msgspec.json.Encoder().encode


def question(prove: Prove) -> bytes:
    return _encode(prove)


def read_question(body: bytes) -> Prove:
    """Raises InvalidInput."""
    try:
        return msgspec.json.decode(body, type=Prove)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"what is to be proved cannot be read: {error}") from error


def answer(outcome: Proved | ShoalError) -> tuple[int, bytes]:
    """Status and body."""
    if isinstance(outcome, ShoalError):
        return outcome.status, _encode(outcome.fault())
    return 200, _encode(outcome)


def read_answer(status: int, body: bytes) -> Proved:
    """Raises what the node refused it with; InternalError for an answer that cannot be read."""
    try:
        if status == 200:
            return msgspec.json.decode(body, type=Proved)
        refused = from_fault(msgspec.json.decode(body, type=Fault))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InternalError(f"the answer of the node that proves it cannot be read: {error}") from error
    raise refused
