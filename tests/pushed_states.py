"""States of pushed names for tests, made from changes as the ledger makes them."""

from shoal.catalog import Artifact, Card
from shoal.catalog.ledger import Aliased, Entry, NameState, Pushed, Removed, RolledBack, fold
from shoal.catalog.verdicts import judge
from shoal.protocol.facts import Facts

FACTS = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=64, dims=8)


def digest(number: int) -> str:
    return f"{number:064x}"


def push(name: str, number: int, base: str = "", base_digest: str = "") -> Pushed:
    card = Card(name=name, source=Artifact(digest(number)), base=base)
    return Pushed(
        at=1.0, who="me", digest=digest(number), card=card, facts=FACTS, size_bytes=100, base=base,
        base_digest=base_digest,
    )  # fmt: skip


def alias(word: str, version: int = 0) -> Aliased:
    return Aliased(at=1.0, who="me", alias=word, version=version)


def back(version: int = 0) -> RolledBack:
    return RolledBack(at=1.0, who="me", version=version)


def remove(version: int = 0) -> Removed:
    return Removed(at=1.0, who="me", version=version)


def after(state: NameState, *changes) -> NameState:
    for change in changes:
        state = fold(state, [Entry(number=state.number + 1, change=judge(state, change))])
    return state


def named(name: str, *changes) -> NameState:
    return after(NameState(name=name), *changes)
