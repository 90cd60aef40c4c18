import importlib.util
import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from shoal.catalog import Card, Hub, Virtual
from shoal.catalog.cards import all_cards
from shoal.catalog.inspect import read_facts
from shoal.catalog.known import ON_PYTORCH, family_of
from shoal.catalog.listed import Listed
from shoal.families import all_families

ROOT = Path(__file__).parent.parent.parent
REAL = [card for card in all_cards().values() if not isinstance(card.source, Virtual)]
HUB = [card for card in REAL if isinstance(card.source, Hub)]
LICENCES = {"Apache-2.0", "MIT", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0", "NOASSERTION", "LicenseRef-Gemma"}
"""SPDX identifiers; NOASSERTION where its publisher states none."""


def by_name(card: Card) -> str:
    return card.name


def listed(card: Card) -> Listed:
    assert card.listed is not None, card.name
    return card.listed


def test_there_are_enough_cards_to_choose_from_for_every_kind_of_model() -> None:
    served = [card for card in REAL if not card.unservable]
    kinds = [kind for card in served for kind in listed(card).kinds]
    assert len(served) >= 60
    assert min(kinds.count("dense"), kinds.count("sparse"), kinds.count("multivector")) >= 5
    assert sum(listed(card).task == "score" for card in served) >= 10
    assert sum("de" in listed(card).languages for card in served) >= 5


def test_a_file_holds_one_card_and_is_named_like_it() -> None:
    folder = ROOT / "src" / "shoal" / "catalog" / "cards"
    files = sorted(path.stem for path in folder.glob("*.toml"))
    assert files == sorted(name.rpartition("/")[2].lower() for name in all_cards())


@pytest.mark.parametrize("card", REAL, ids=by_name)
def test_every_fact_on_a_card_says_where_it_was_read(card: Card) -> None:
    stated = {f"facts.{name}" for name in card.facts} | {"source", "licence", "revision"}
    stated |= {"unservable"} if card.unservable else set()
    assert stated <= set(card.provenance)
    assert "listed" in card.provenance
    assert all(len(where) > 10 and where.endswith(".") for where in card.provenance.values())
    of_listed = {key.removeprefix("listed.") for key in card.provenance if key.startswith("listed.")}
    assert all(getattr(listed(card), field) for field in of_listed), "a source of what is not stated"


@pytest.mark.parametrize("card", HUB, ids=by_name)
def test_a_hub_card_is_pinned_where_its_revision_was_read_and_unverified_elsewhere(card: Card) -> None:
    assert isinstance(card.source, Hub)
    assert card.source.repo == card.name
    assert card.verified == bool(card.revision)
    if card.revision:
        assert re.fullmatch("[0-9a-f]{40}", card.revision)
        assert card.source.revision == card.revision
    else:
        assert card.source.revision == "" or card.source.revision.startswith("refs/pr/")
        assert "not looked up" in card.provenance["revision"].lower()


@pytest.mark.parametrize("card", REAL, ids=by_name)
def test_what_is_listed_is_sane(card: Card) -> None:
    known = listed(card)
    assert card.title
    assert card.licence in LICENCES
    assert card.homepage == f"https://huggingface.co/{card.name}"
    assert bool(known.kinds) == (known.task == "encode")
    assert known.dims == 0 or 32 <= known.dims <= 8192
    assert known.max_tokens == 0 or 64 <= known.max_tokens <= 131_072
    assert known.parameters == 0 or 1_000_000 <= known.parameters <= 2_000_000_000
    assert list(known.languages) == sorted(set(known.languages))
    assert all(re.fullmatch("[a-z]{2,3}", language) for language in known.languages)


@pytest.mark.parametrize("card", [card for card in REAL if "prompts" in card.facts], ids=by_name)
def test_prompts_end_where_the_text_begins(card: Card) -> None:
    prompts = card.facts["prompts"]
    assert isinstance(prompts, dict)
    assert "query" in prompts
    assert len(set(prompts.values())) == len(prompts)
    # A Chinese instruction ends in a wide colon and takes no space.
    assert all(text.endswith((" ", "：")) and text == text.lstrip() for text in prompts.values())


@pytest.mark.parametrize("card", [card for card in REAL if not card.unservable], ids=by_name)
def test_what_can_be_added_is_of_a_family_that_is_here_or_on_pytorch(card: Card) -> None:
    assert family_of(listed(card).family) in {*all_families(), *ON_PYTORCH}


@pytest.mark.parametrize("card", [card for card in HUB if card.facts], ids=by_name)
def test_what_a_card_says_fits_the_bare_files_of_such_a_model(card: Card, tmp_path: Path) -> None:
    kinds = card.facts.get("kinds", listed(card).kinds)
    head = "ForMaskedLM" if kinds == ["sparse"] else "Model"
    config = {"model_type": listed(card).family, "architectures": [head], "hidden_size": 1024}
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config | {"max_position_embeddings": 512}))
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    facts = read_facts(tmp_path, card.facts, is_whole=False)
    assert facts.kinds == listed(card).kinds
    assert facts.prompts == card.facts.get("prompts", {})
    assert facts.multivector is None or facts.multivector.dims == listed(card).dims


def test_the_page_of_models_is_what_its_script_makes_of_the_cards() -> None:
    page = models_page().page(all_cards().values())
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == page, "run python scripts/models_page.py"
    assert all(f"[{card.name}]({card.homepage})" in page for card in REAL)


def models_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("models_page", ROOT / "scripts" / "models_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
