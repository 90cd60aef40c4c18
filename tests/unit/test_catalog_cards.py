import re

import pytest

from shoal.catalog import Package, Virtual
from shoal.catalog.cards import all_cards, parse_card
from shoal.catalog.inspect import settle
from shoal.protocol.errors import InvalidInput

CARD = """
name = "org/model"
[source]
kind = "package"
distribution = "d"
version = "1"
sha256 = "00"
folder = "f"
"""


def test_every_fact_that_is_stated_has_its_source_and_nothing_unverified_has_a_revision() -> None:
    for card in all_cards().values():
        assert "source" in card.provenance, card.name
        assert card.licence, card.name
        assert card.verified == (card.revision is not None or isinstance(card.source, Virtual)), card.name
        if not isinstance(card.source, Virtual):
            stated = {f"facts.{name}" for name in card.facts} | ({"tolerance"} if card.tolerance else set())
            assert stated <= set(card.provenance), card.name
            assert {"licence", "revision"} <= set(card.provenance), card.name


def test_every_package_is_pinned_by_version_and_sha256() -> None:
    packages = [card.source for card in all_cards().values() if isinstance(card.source, Package)]
    assert packages
    assert all(re.fullmatch("[0-9a-f]{64}", source.sha256) and source.version for source in packages)


def test_one_card_is_the_default_of_each_task_and_no_stand_in_is() -> None:
    defaults = [card for card in all_cards().values() if card.default]
    assert [card.name for card in defaults] == [
        "cross-encoder/ms-marco-MiniLM-L-12-v2",
        "sentence-transformers/all-MiniLM-L6-v2",
    ]


def test_the_stand_ins_say_that_they_are() -> None:
    stand_ins = [card for card in all_cards().values() if isinstance(card.source, Virtual)]
    assert {task for card in stand_ins for task in settle({"files": "none"}, card.facts).tasks} == {
        "encode",
        "score",
    }
    assert all("stand-in" in card.title and "virtual" in card.name for card in stand_ins)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CARD + "colour = 1", "colour"),
        ("colour = 1\n" + CARD, "colour"),
        (CARD.replace("package", "ftp"), "ftp"),
        (CARD.replace('name = "org/model"', ""), "name"),
        (CARD.replace("org/model", "../model"), "cannot name a model"),
        (CARD + "[facts]\nwidth = 3", "no fact called width"),
        ("name =", "card.toml"),
        ("default = 'yes'\n" + CARD, "default"),
    ],
)
def test_a_card_with_a_mistake_is_refused_and_names_file_and_field(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=rf"card\.toml: .*{reason}" if reason != "card.toml" else "card.toml"):
        parse_card(text, "card.toml")
