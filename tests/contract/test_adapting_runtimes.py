"""What every runtime owes that computes LoRA adapters: each row is of its own adapter, whatever is beside it."""

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shoal.families.lora import read_adapter
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import InferenceError, ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Adapting, Runtime, open_runtime
from shoal.runtimes.compute import compute
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import tiny_encoder, tiny_reranker
from shoal.testing.heads import tiny_looked_up, tiny_multivector, tiny_sparse

KINDS = {
    "openvino": Profile(runtime="openvino", streams=2),
    "openvino-bf16": Profile(runtime="openvino", dtype="bf16", streams=2),
    "onnx-built": Profile(runtime="onnx", streams=2),
    "pytorch": Profile(runtime="pytorch", streams=2),
}
ADAPTERS = {
    "attention": {"targets": ("query", "value"), "rank": 4},
    "everything": {"rank": 8, "seed": 1},
    "rslora": {"rank": 16, "seed": 2, "use_rslora": True},
    "one layer": {"targets": ("encoder.layer.1.intermediate.dense",), "rank": 3, "seed": 3},
}
TEXTS = [
    "fish",
    "the small shoal swim",
    "paris is the capital of france and berlin",
    "a model of a word " * 9,
    "london and paris",
]


class Loaded(NamedTuple):
    """A base, and what each adapter makes of `TEXTS`: of a base with the same added to its weights, in fp32."""

    runtime: Runtime
    folder: Path
    adapters: dict[str, Path]
    expected: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=KINDS)
def profile(request) -> Profile:
    if request.param == "pytorch":
        pytest.importorskip("sentence_transformers")
    return KINDS[request.param]


@pytest.fixture(scope="module")
def loaded(profile, tmp_path_factory) -> Loaded:
    root = tmp_path_factory.mktemp("base")
    facts = tiny_encoder(root)
    adapters = {name: write_adapter(root / name, root, **said) for name, said in ADAPTERS.items()}
    expected = {"": vectors(open_runtime(root, facts, exact(profile)), items_of("", TEXTS))}
    for name, adapter in adapters.items():
        merged(root, adapter, tiny_encoder, root / f"{name} merged")
        expected[name] = vectors(open_runtime(root / f"{name} merged", facts, exact(profile)), items_of("", TEXTS))
    runtime = open_runtime(root, facts, profile)
    take_all(runtime, adapters)
    return Loaded(runtime, root, adapters, expected)


def exact(profile: Profile) -> Profile:
    return Profile(runtime=profile.runtime)


def merged(folder: Path, adapter: Path, write: Callable[[Path], Facts], into: Path) -> None:
    """The model of `folder` with the adapter's products in its weights."""
    write(into)
    names = {name.removeprefix("bert."): name for name in load_file(folder / "model.safetensors")}
    weights = load_file(folder / "model.safetensors")
    for site, (a, b) in read_adapter(adapter, Checkpoint(folder).matrices()).items():
        weights[names[f"{site}.weight"]] += b @ a
    save_file(weights, into / "model.safetensors")


def take_all(runtime: Runtime, adapters: dict[str, Path]) -> None:
    assert isinstance(runtime, Adapting)
    for name, folder in adapters.items():
        stored = (folder / "adapter_model.safetensors").stat().st_size
        assert 0 < runtime.take_adapter(name, folder) <= stored


def items_of(adapter: str, texts: list[str]) -> list[Item]:
    return [Item(text, adapter=adapter) for text in texts]


def vectors(runtime: Runtime, items: list[Item], slot: int = 0, output: str = "dense") -> np.ndarray:
    return np.stack([row[output] for row in runtime.run(runtime.prepare(items), slot).rows])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def bar(runtime: Runtime) -> float:
    return 0.999 if runtime.profile.dtype == "bf16" else 0.9999


def check(runtime: Runtime, asked: list[tuple[str, int]], expected: dict[str, np.ndarray], slot: int = 0) -> None:
    """`asked`: adapter, and place in `TEXTS`."""
    found = vectors(runtime, [Item(TEXTS[place], adapter=name) for name, place in asked], slot)
    wanted = np.stack([expected[name][place] for name, place in asked])
    assert cosines(found, wanted).min() >= bar(runtime)


def every(expected: dict[str, np.ndarray]) -> list[tuple[str, int]]:
    return [(name, place) for name in expected for place in range(len(TEXTS))]


def test_an_adapter_alone_gives_what_its_products_in_the_weights_give(loaded):
    for name in loaded.expected:
        check(loaded.runtime, [(name, place) for place in range(len(TEXTS))], loaded.expected)
        for place in range(len(TEXTS)):
            check(loaded.runtime, [(name, place)], loaded.expected)


def test_every_two_adapters_differ_from_each_other_and_from_the_base(loaded):
    names = list(loaded.expected)
    for i, name in enumerate(names):
        for other in names[:i]:
            assert cosines(loaded.expected[name], loaded.expected[other]).min() < 0.99


@pytest.mark.parametrize("seed", range(4))
def test_items_of_several_adapters_and_of_none_share_a_batch_in_any_order(loaded, seed):
    asked = every(loaded.expected)
    random.Random(seed).shuffle(asked)
    check(loaded.runtime, asked[: 3 + 7 * seed], loaded.expected)


def test_a_row_without_an_adapter_is_the_same_beside_rows_that_have_one(loaded):
    alone = vectors(loaded.runtime, items_of("", TEXTS))
    for name in loaded.adapters:
        beside = vectors(loaded.runtime, [*items_of("", TEXTS), *items_of(name, TEXTS)])[: len(TEXTS)]
        assert cosines(alone, beside).min() >= 0.9999


def test_an_adapter_is_taken_and_dropped_while_batches_of_others_run(loaded):
    runtime, asked = loaded.runtime, every(loaded.expected)
    over = threading.Event()

    def work(slot: int) -> int:
        chance, batches = random.Random(slot), 0
        while not over.is_set() or not batches:
            check(runtime, chance.sample(asked, chance.randint(1, len(asked))), loaded.expected, slot)
            batches += 1
        return batches

    with ThreadPoolExecutor(2) as streams:
        working = [streams.submit(work, slot) for slot in range(2)]
        try:
            for turn in range(8):
                targets = ("query",) if turn < 4 else ("key", "dense")
                other = write_adapter(loaded.folder / f"other {turn}", loaded.folder, targets=targets, seed=turn)
                runtime.take_adapter(f"other {turn}", other)
                runtime.drop_adapter(f"other {turn}")
        finally:
            over.set()
        assert all(stream.result(60) for stream in working)


def test_what_was_dropped_is_not_computed_and_its_place_is_taken_by_another(loaded):
    runtime = loaded.runtime
    first, second = (
        write_adapter(loaded.folder / f"place {seed}", loaded.folder, seed=10 + seed) for seed in range(2)
    )
    runtime.take_adapter("first", first)
    before = vectors(runtime, items_of("first", TEXTS))
    runtime.drop_adapter("first")
    runtime.drop_adapter("first")
    with pytest.raises(InferenceError, match="first"):
        vectors(runtime, items_of("first", TEXTS))
    runtime.take_adapter("second", second)
    after = vectors(runtime, items_of("second", TEXTS))
    assert cosines(before, after).min() < 0.99
    runtime.take_adapter("first", first)
    assert cosines(vectors(runtime, items_of("first", TEXTS)), before).min() >= bar(runtime)
    for name in ("first", "second"):
        runtime.drop_adapter(name)


def test_an_item_whose_adapter_is_not_there_fails_alone(loaded):
    batch = loaded.runtime.prepare([Item("fish"), Item("fish", adapter="absent"), Item("fish", adapter="rslora")])
    outputs, _ = compute(loaded.runtime, batch, 0, ["a", "b", "c"])
    assert [output.fault is None for output in outputs] == [True, False, True]


def test_sixty_four_adapters_are_held_and_share_batches(profile, tmp_path):
    facts = tiny_encoder(tmp_path)
    runtime = open_runtime(tmp_path, facts, profile)
    ranks = [random.Random(n).choice([1, 2, 8, 8, 8, 16]) for n in range(64)]
    take_all(
        runtime,
        {str(n): write_adapter(tmp_path / str(n), tmp_path, rank=rank, seed=n) for n, rank in enumerate(ranks)},
    )
    items = [Item(TEXTS[n % len(TEXTS)], adapter=str(n)) for n in range(64)] + items_of("", TEXTS)
    alone = np.concatenate([vectors(runtime, [item]) for item in items])
    order = random.Random(0).sample(range(len(items)), len(items))
    assert cosines(vectors(runtime, [items[i] for i in order]), alone[order]).min() >= bar(runtime)
    assert len(np.unique(alone.round(3), axis=0)) == len(items)


def spoilt(folder: Path, how: str) -> None:
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("lora_B.weight"))
    if how == "a wrong shape":
        tensors[name] = tensors[name][:-1].copy()
    elif how == "a layer that is not there":
        for side in "AB":
            tensors[f"base_model.model.encoder.layer.9.output.dense.lora_{side}.weight"] = tensors[name]
    elif how == "half of a pair":
        del tensors[name]
    elif how in ("nan", "inf"):
        tensors[name][3] = float(how)
    elif how == "an absurd rank":
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 100_000}))
    save_file(tensors, path)


BAD = ["a wrong shape", "a layer that is not there", "half of a pair", "nan", "inf", "an absurd rank"]


@pytest.mark.parametrize("how", BAD)
def test_a_bad_adapter_is_refused_and_all_is_as_before(loaded, tmp_path, how):
    bad = write_adapter(tmp_path, loaded.folder, seed=20)
    spoilt(bad, how)
    with pytest.raises(ModelLoadFailed):
        loaded.runtime.take_adapter("bad", bad)
    with pytest.raises(InferenceError):
        vectors(loaded.runtime, items_of("bad", TEXTS))
    check(loaded.runtime, every(loaded.expected), loaded.expected)


def test_numbers_of_one_adapter_that_overflow_spoil_no_neighbour(loaded, tmp_path):
    wild = write_adapter(tmp_path, loaded.folder, strength=1e30)
    tensors = load_file(wild / "adapter_model.safetensors")
    save_file({name: tensor * 1e8 for name, tensor in tensors.items()}, wild / "adapter_model.safetensors")
    with np.errstate(all="ignore"):
        loaded.runtime.take_adapter("wild", wild)
        names = ["", *loaded.adapters]
        items = [Item(TEXTS[1], adapter=name) for name in [*names, "wild"]]
        found = vectors(loaded.runtime, items)
    assert not np.isfinite(found[-1]).all()
    expected = np.stack([loaded.expected[name][1] for name in names])
    assert cosines(found[:-1], expected).min() >= bar(loaded.runtime)
    loaded.runtime.drop_adapter("wild")


def test_the_layers_of_a_cross_encoder_that_see_whole_texts_are_adapted_too(profile, tmp_path):
    base, into = tmp_path / "base", tmp_path / "merged"
    facts = tiny_reranker(base)
    targets = ("query", "dense", "classifier")
    adapter = write_adapter(tmp_path / "adapter", base, targets=targets, rank=2)
    merged(base, adapter, tiny_reranker, into)
    runtime = open_runtime(base, facts, exact(profile))
    take_all(runtime, {"adapter": adapter})
    pairs = [Item("capital of france", pair=text) for text in TEXTS]
    expected = vectors(open_runtime(into, facts, exact(profile)), pairs, output="score")
    own = [Item(item.text, pair=item.pair, adapter="adapter") for item in pairs]
    found = vectors(runtime, [*own, *pairs], output="score")
    assert np.allclose(found, [*expected, *vectors(runtime, pairs, output="score")], atol=1e-4)
    assert np.abs(found[: len(pairs)] - found[len(pairs) :]).max() > 0.01


@pytest.mark.parametrize(
    ("write", "kind"), [(tiny_sparse, "sparse"), (tiny_looked_up, "sparse"), (tiny_multivector, "multivector")]
)
def test_sparse_and_token_vectors_are_those_of_the_adapted_states(profile, tmp_path, write, kind):
    base, into = tmp_path / "base", tmp_path / "merged"
    facts = write(base)
    targets = ("query", "value", "intermediate.dense", "output.dense")
    adapter = write_adapter(tmp_path / "adapter", base, targets=targets)
    merged(base, adapter, write, into)
    runtime = open_runtime(base, facts, exact(profile))
    take_all(runtime, {"adapter": adapter})
    reference = open_runtime(into, facts, exact(profile))

    def rows(runtime: Runtime, adapters: list[str]) -> list[dict[str, np.ndarray]]:
        items = [Item(t, adapter=a, kinds=(kind,), is_query=False) for a in adapters for t in TEXTS]
        return runtime.run(runtime.prepare(items), 0).rows

    expected = rows(reference, [""]) + rows(runtime, [""])
    for row, wanted in zip(rows(runtime, ["adapter", ""]), expected, strict=True):
        assert row.keys() == wanted.keys()
        for name in row:
            assert np.allclose(row[name], wanted[name], atol=2e-4)
