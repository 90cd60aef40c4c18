"""What a host says in its log of an item that its runtime could not prepare or compute."""

import logging

import pytest

from shoal.protocol.items import Item
from shoal.runtimes import Prepared
from shoal.runtimes.compute import compute, prepare


class Broken:
    """Fails on what holds "bad", as a library does: with whatever it likes."""

    def prepare(self, items):
        if any("bad" in item.text for item in items):
            raise RuntimeError("a panic")
        return [Prepared(item, [1, 2], [0, 0]) for item in items]

    def run(self, batch, stream):
        raise MemoryError


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.ERROR, "shoal.host")
    return caplog


def requests(caplog) -> list[str]:
    return [record.fields["request"] for record in caplog.records]


def test_an_item_that_cannot_be_prepared_is_logged_with_its_request_and_its_neighbours_are_prepared(heard):
    entries = prepare(Broken(), [Item("good"), Item("bad"), Item("good too")], ["a", "b", "c"])
    assert [isinstance(entry, Prepared) for entry in entries] == [True, False, True]
    assert requests(heard) == ["b"]


def test_every_item_that_cannot_be_computed_is_logged_with_its_request(heard):
    items = prepare(Broken(), [Item("one"), Item("two"), Item("three")], ["a", "b", "c"])
    outputs, measured = compute(Broken(), items, 0, ["a", "b", "c"])
    assert [output.fault.code for output in outputs] == ["INFERENCE_ERROR"] * 3
    assert measured is None
    assert requests(heard) == ["a", "b", "c"]
