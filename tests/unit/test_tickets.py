"""A job in a node's hands, with a task whose entries are of all three sorts."""

import msgspec
import numpy as np

from shoal.catalog import Model
from shoal.catalog.store import Store
from shoal.node.tickets import open_ticket
from shoal.protocol.envelope import Envelope, Job
from shoal.protocol.facts import MultiVector
from shoal.protocol.items import Output
from shoal.protocol.tensors import Tensor

ENVELOPE = Envelope(
    id="j", task="score", model="m", line="m", dialect="native", route="score", deadline=0.0, received=0.0,
    content_type="application/json", accept="application/json",
)  # fmt: skip


class Lent(msgspec.Struct):
    job: Job


def late_model(home) -> Model:
    model = Store(home).resolve("shoal/virtual-encoder")
    facts = msgspec.structs.replace(
        model.facts, tasks=("encode", "score"), kinds=("multivector",), multivector=MultiVector(dims=2)
    )
    return msgspec.structs.replace(model, facts=facts)


def ticket(home, body: object):
    return open_ticket(Lent(Job(ENVELOPE, msgspec.json.encode(body))), late_model(home), 100)


def test_an_output_known_beforehand_is_neither_sent_nor_waited_for(virtual_home):
    opened = ticket(
        virtual_home, {"query": {"multivector": [[1, 0]]}, "items": ["a", "", {"multivector": [[1, 1]]}]}
    )
    assert list(opened.unsent) == [1]
    assert opened.remaining == 1
    assert opened.settle(1, Output({"multivector": Tensor.of(np.array([[0.5, 0]], "<f4"))}, tokens=3))
    scores = msgspec.json.decode(opened.answer().data)["scores"]
    assert [(entry["item_id"], entry["score"]) for entry in scores[:2]] == [("item-2", 1.0), ("item-0", 0.5)]
    assert scores[2]["error"]["code"] == "EMPTY_INPUT"


def test_a_job_of_known_outputs_alone_is_whole_at_once(virtual_home):
    opened = ticket(virtual_home, {"query": {"multivector": [[1, 0]]}, "items": [{"multivector": [[2, 0]]}]})
    assert opened.remaining == 0
    assert msgspec.json.decode(opened.answer().data)["scores"][0]["score"] == 2.0
