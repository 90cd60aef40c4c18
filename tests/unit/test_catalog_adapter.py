"""LoRA adapters in the store: beside their base, by its facts, refused with the reason where they do not fit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shoal.catalog import Card, Virtual
from shoal.catalog.budget import to_evict
from shoal.catalog.store import Store
from shoal.protocol.errors import InvalidInput, ModelNotFound, ResourceExhausted
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import tiny_encoder

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_encoder(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def store(tmp_path: Path, base: Path) -> Store:
    found = Store(tmp_path / "home")
    found.add(base, name="org/tiny")
    return found


@pytest.fixture
def lora(tmp_path: Path, base: Path) -> Path:
    return write_adapter(tmp_path / "lora", base, base_model_name_or_path="org/tiny")


def configure(folder: Path, **more: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def test_an_adapter_is_a_model_of_its_own_with_the_facts_of_the_base_that_its_files_name(store, lora):
    added = store.add(lora, name="team/contracts")
    base = store.resolve("org/tiny")
    assert (added.card.base, added.facts, added.line) == ("org/tiny", base.facts, "org/tiny")
    assert {path.name for path in added.folder.iterdir()} == {"adapter_config.json", WEIGHTS}
    assert store.resolve("team__contracts") == added
    assert Store(store.home).models() == {"org/tiny": base, "team/contracts": added}
    with pytest.raises(ModelNotFound, match="no variant"):
        store.resolve("team/contracts:int8")
    assert store.default_model("encode").name == "org/tiny"


def test_the_base_can_be_named_where_the_files_name_a_path_or_nothing(store, lora):
    for said in ("/home/somebody/tiny", "org/unknown", "tiny"):
        configure(lora, base_model_name_or_path=said)
        with pytest.raises(InvalidInput, match="--base NAME"):
            store.add(lora, name="team/contracts")
    configure(lora, base_model_name_or_path=None)
    with pytest.raises(InvalidInput, match="--base NAME"):
        store.add(lora, name="team/contracts")
    assert store.add(lora, name="team/contracts", base="org__tiny").card.base == "org/tiny"


def test_a_known_base_that_is_not_here_is_named_with_the_line_that_brings_it(store, lora):
    configure(lora, base_model_name_or_path="BAAI/bge-small-en-v1.5")
    with pytest.raises(InvalidInput, match=r"shoal add BAAI/bge-small-en-v1\.5"):
        store.add(lora, name="team/contracts")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("org/nothing", "the base is not here"),
        ("team/first", "an adapter itself, of org/tiny"),
        ("org/tiny:int8", "whose variants all can use it"),
    ],
)
def test_what_is_no_base_is_refused(store, lora, asked, words):
    store.add(lora, name="team/first")
    with pytest.raises(InvalidInput, match=words):
        store.add(lora, name="team/second", base=asked)


def test_an_adapter_never_takes_the_place_of_a_base(store, lora, base):
    with pytest.raises(InvalidInput, match="is the base itself"):
        store.add(lora, name="org/tiny")
    store.add(base, name="org/second")
    store.add(lora, name="team/contracts")
    with pytest.raises(InvalidInput, match="is the base of team/contracts"):
        store.add(lora, name="org/tiny", base="org/second")


def test_a_published_graph_takes_no_adapters(store, lora, base, tmp_path):
    graph = tmp_path / "graph"
    shutil.copytree(base, graph)
    (graph / "model.safetensors").rename(graph / "gone")
    (graph / "model.onnx").write_bytes(b"\x08\x08")
    store.add(graph, name="org/graph")
    with pytest.raises(InvalidInput, match="published ONNX graph"):
        store.add(lora, name="team/contracts", base="org/graph")


def test_a_base_is_named_for_adapters_alone(store, base):
    with pytest.raises(InvalidInput, match="a model of their own"):
        store.add(base, name="org/other", base="org/tiny")


def spoil(lora: Path, change) -> None:
    tensors = load_file(lora / WEIGHTS)
    change(tensors)
    save_file(tensors, lora / WEIGHTS)


def with_nan(tensors):
    next(iter(tensors.values()))[0, 0] = np.nan


def of_another_width(tensors):
    name = next(name for name in tensors if "lora_A" in name)
    tensors[name] = np.ones((8, 3), "f4")


def of_another_kind(tensors):
    for name in list(tensors):
        tensors[name.replace("encoder.layer", "model.layers")] = tensors.pop(name)


@pytest.mark.parametrize(
    ("change", "words"),
    [(with_nan, "not finite"), (of_another_width, "shape"), (of_another_kind, "no linear layer of this name")],
)
def test_an_adapter_that_does_not_fit_is_refused_with_the_tensor_and_nothing_is_kept(store, lora, change, words):
    spoil(lora, change)
    with pytest.raises(InvalidInput, match=f"does not fit org/tiny: .*{words}"):
        store.add(lora, name="team/contracts")
    assert list(store.models()) == ["org/tiny"]
    assert store.leftovers() == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"r": 100_000}, "100000"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["classifier"]}, "modules_to_save"),
    ],
)
def test_what_asks_for_more_than_two_factors_is_refused_with_the_setting(store, lora, said, words):
    configure(lora, **said)
    with pytest.raises(InvalidInput, match=words):
        store.add(lora, name="team/contracts")


def test_weights_that_are_none_are_refused(store, lora):
    (lora / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InvalidInput, match="LFS pointer"):
        store.add(lora, name="team/contracts")


def test_a_base_goes_only_after_its_adapters(store, lora):
    store.add(lora, name="team/contracts")
    with pytest.raises(InvalidInput, match="remove team/contracts before"):
        store.remove("org/tiny")
    assert store.collect() == []
    store.remove("team/contracts")
    store.remove("org/tiny")
    assert store.models() == {}


def test_room_on_disk_is_not_made_by_removing_a_base_that_has_adapters(store, lora):
    store.add(lora, name="team/contracts")
    models, used = store.models(), {"org/tiny": 1.0, "team/contracts": 2.0}
    taken = sum(model.size_bytes for model in models.values())
    assert to_evict(models, used, 1, taken, may_evict=True) == ["team/contracts"]
    with pytest.raises(ResourceExhausted):
        to_evict(models, used, taken, taken, may_evict=True)


def test_an_adapter_whose_base_is_gone_is_no_model_and_the_listing_says_why(store, lora):
    store.add(lora, name="team/contracts")
    (store.home / "models" / "org__tiny.json").unlink()
    store.refresh()
    assert store.models() == {}
    assert "shoal add org/tiny" in store.problems["team/contracts"]
    store.remove("team/contracts")


def test_an_adapters_facts_are_those_of_the_base_as_it_is_now(store, lora, base):
    store.add(lora, name="team/contracts")
    (base / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    store.add(base, name="org/tiny")
    assert store.resolve("team/contracts").facts.max_tokens == 16


def test_a_stand_in_takes_any_adapter(store, lora):
    store.add(Card(name="shoal/stand-in", source=Virtual(), facts={"tasks": ["encode"], "family": "virtual",
        "max_tokens": 512, "dims": 8}))  # fmt: skip
    assert store.add(lora, name="team/contracts", base="shoal/stand-in").line == "shoal/stand-in"
