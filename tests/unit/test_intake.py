"""Jobs opened into tickets: whose numbers they are to get, and what is refused before anything is computed."""

import asyncio
import json

import msgspec
import pytest

from shoal.catalog import Model
from shoal.node.cost import Cost
from shoal.node.intake import opened
from shoal.node.line import Known, Line
from shoal.node.roster import Roster
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.errors import ModelNotFound
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.tasks.part import PartRequest
from shoal.testing.effects import Delivery, model


class Here:
    """A catalog of one base, another model, and an adapter of each."""

    def __init__(self) -> None:
        self.known = {
            "org/m": model("org/m"), "org/other": model("org/other"),
            "team/a": model("team/a", base="org/m"), "team/b": model("team/b", base="org/other"),
        }  # fmt: skip

    def models(self) -> dict[str, Model]:
        return self.known

    def resolve(self, name: str) -> Model:
        if name not in self.known:
            raise ModelNotFound(f"no model is called {name!r}")
        return self.known[name]


class Replies(Delivery):
    def reply(self, chunk) -> None:
        self.chunk = chunk
        super().reply(chunk)


def open_(body: dict | bytes, *, name: str = "org/m", task: str = "encode", dialect: str = "native"):
    """The ticket, or the refusal as (status, code, message)."""
    envelope = Envelope(
        id="r", task=task, model=name, line="org/m", dialect=dialect, route=task, deadline=0.0, received=0.0
    )
    lines = {"org/m": Line(model("org/m"), Profile(runtime="virtual"), Known(cost=Cost()), False)}
    roster = Roster(Here(), None, None, None)
    roster.adapters = {"team/a": model("team/a", base="org/m")}
    delivery = Replies(Job(envelope, body if isinstance(body, bytes) else json.dumps(body).encode()))
    ticket = asyncio.run(opened(delivery, lines, roster.adapter, 100))
    if ticket is not None:
        assert delivery.done == []
        return ticket
    assert delivery.done == ["reply", "ack"]
    if dialect == "part":
        return delivery.chunk.status
    (said,) = json.loads(delivery.chunk.data).values()
    return delivery.chunk.status, said["code"], said["message"]


def asking(adapter: str) -> dict:
    return {"items": ["one", "two"], "params": {"options": {"lora_id": adapter}}}


def test_every_item_is_computed_with_the_adapter_that_was_named_as_the_model_or_beside_it():
    for ticket in (open_(asking("team/a")), open_({"items": ["one", "two"]}, name="team/a")):
        assert [item.adapter for item in ticket.items] == ["of team/a"] * 2
        assert (ticket.needs, ticket.model.name) == ("of team/a", "org/m")
    assert {item.adapter for item in open_({"items": ["one"]}).items} == {""}
    assert open_(asking("team/a"), name="team/a").needs == "of team/a"


@pytest.mark.parametrize(
    ("body", "name", "status", "code", "words"),
    [
        (asking("mine"), "org/m", 404, "MODEL_NOT_FOUND", "no adapter named 'mine' of org/m: it has team/a"),
        ({"items": ["a"]}, "mine", 404, "MODEL_NOT_FOUND", "'mine'"),
        (asking("team/b"), "org/m", 400, "INVALID_INPUT", "an adapter of org/other, not of org/m"),
        (asking("org/m"), "org/m", 400, "INVALID_INPUT", "no adapter"),
        (asking("team/b"), "team/a", 400, "INVALID_INPUT", "on top"),
    ],
)
def test_an_adapter_that_is_unknown_or_of_another_base_is_refused_and_the_base_is_not_put_in_its_place(
    body, name, status, code, words
):
    refused = open_(body, name=name)
    assert refused[:2] == (status, code)
    assert words in refused[2]


def test_a_text_is_tokenised_without_any_adapter():
    ticket = open_({"inputs": "one"}, name="team/a", task="tokenize", dialect="tei")
    assert ticket.needs == ""


def test_a_part_of_another_nodes_request_is_computed_with_the_same_files_or_not_at_all():
    def part(digest: str) -> bytes:
        return msgspec.msgpack.encode(PartRequest([Item("one", adapter=digest)]))

    ticket = open_(part("of team/a"), name="team/a", task="part", dialect="part")
    assert ticket.needs == "of team/a"
    assert open_(part("other files"), name="team/a", task="part", dialect="part") == 404
