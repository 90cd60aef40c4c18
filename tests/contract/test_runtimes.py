"""What every runtime owes: tried on each one in the folder, and on each kind of file that it takes."""

import importlib
import pkgutil
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import msgspec
import numpy as np
import pytest

import shoal.runtimes
from shoal.protocol.errors import EmptyInput, InputTooLong, InvalidInput
from shoal.protocol.facts import Facts, MultiVector, Profile, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.testing.checkpoints import tiny_encoder, tiny_reranker
from shoal.testing.graphs import (
    published_classifier,
    published_encoder,
    published_multivector,
    published_reranker,
    published_sparse,
)
from shoal.testing.heads import tiny_classifier, tiny_dense, tiny_looked_up, tiny_multivector, tiny_sparse


def virtual_encoder(folder) -> Facts:
    (folder / "virtual.json").write_text('{"seconds": 0, "seconds_per_token": 0}')
    return Facts(
        tasks=("encode",), family="virtual", files="none", max_tokens=64, dims=32, matryoshka=(16,), normalize=True
    )


def virtual_reranker(folder) -> Facts:
    return msgspec.structs.replace(virtual_encoder(folder), tasks=("score",), dims=0, matryoshka=())


def virtual_of_all_kinds(folder) -> Facts:
    return msgspec.structs.replace(
        virtual_encoder(folder),
        tasks=("encode", "score"),
        kinds=("dense", "sparse", "multivector"),
        sparse=Sparse(),
        multivector=MultiVector(dims=8, query_tokens=12, document_tokens=20),
    )


ENCODERS = {
    "openvino": ("openvino", tiny_encoder),
    "openvino-bf16": ("openvino", tiny_encoder),
    "openvino-dense": ("openvino", tiny_dense),
    "openvino-cls": ("openvino", lambda folder: tiny_encoder(folder, pooling="cls", normalize=False)),
    "onnx-built": ("onnx", tiny_encoder),
    "onnx-built-cls": ("onnx", lambda folder: tiny_encoder(folder, pooling="cls", normalize=False)),
    "onnx-published": ("onnx", published_encoder),
    "onnx-published-int8": ("onnx", lambda folder: published_encoder(folder, quantised=True)),
    "pytorch": ("pytorch", tiny_encoder),
    "virtual": ("virtual", virtual_encoder),
}
SPARSE = {
    "openvino": ("openvino", tiny_sparse),
    "openvino-sum": ("openvino", lambda folder: tiny_sparse(folder, sparse=Sparse(pooling="sum"))),
    "openvino-looked-up": ("openvino", tiny_looked_up),
    "onnx-built": ("onnx", tiny_sparse),
    "onnx-published": ("onnx", published_sparse),
    "onnx-published-int8": ("onnx", lambda folder: published_sparse(folder, quantised=True)),
    "pytorch": ("pytorch", tiny_sparse),
    "virtual": ("virtual", virtual_of_all_kinds),
}
MULTIVECTOR = {
    "openvino": ("openvino", tiny_multivector),
    "openvino-attends": ("openvino", lambda folder: tiny_multivector(folder, attend_to_expansion=True)),
    "onnx-built": ("onnx", tiny_multivector),
    "onnx-published": ("onnx", published_multivector),
    "onnx-published-int8": ("onnx", lambda folder: published_multivector(folder, quantised=True)),
    "pytorch": ("pytorch", tiny_multivector),
    "virtual": ("virtual", virtual_of_all_kinds),
}
CLASSIFIERS = {
    "openvino": ("openvino", tiny_classifier),
    "onnx-built": ("onnx", tiny_classifier),
    "onnx-published": ("onnx", published_classifier),
    "pytorch": ("pytorch", tiny_classifier),
    "virtual": ("virtual", lambda folder: msgspec.structs.replace(virtual_reranker(folder), labels=("no", "yes"))),
}
SCORERS = {
    "openvino": ("openvino", tiny_reranker),
    "onnx-built": ("onnx", tiny_reranker),
    "onnx-published": ("onnx", published_reranker),
    "pytorch": ("pytorch", tiny_reranker),
    "virtual": ("virtual", virtual_reranker),
}


def opened(name: str, kinds, tmp_path_factory) -> tuple[Runtime, Facts]:
    runtime, write = kinds[name]
    if runtime == "pytorch":
        pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp(name)
    facts = write(folder)
    profile = Profile(runtime=runtime, dtype="bf16" if name.endswith("bf16") else "fp32", streams=2)
    return open_runtime(folder, facts, profile), facts


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(request, tmp_path_factory) -> tuple[Runtime, Facts]:
    return opened(request.param, ENCODERS, tmp_path_factory)


@pytest.fixture(scope="module", params=SCORERS)
def scorer(request, tmp_path_factory) -> Runtime:
    return opened(request.param, SCORERS, tmp_path_factory)[0]


@pytest.fixture(scope="module", params=SPARSE)
def sparse(request, tmp_path_factory) -> Runtime:
    return opened(request.param, SPARSE, tmp_path_factory)[0]


@pytest.fixture(scope="module", params=MULTIVECTOR)
def multivector(request, tmp_path_factory) -> tuple[Runtime, Facts]:
    return opened(request.param, MULTIVECTOR, tmp_path_factory)


@pytest.fixture(scope="module", params=CLASSIFIERS)
def classifier(request, tmp_path_factory) -> tuple[Runtime, Facts]:
    return opened(request.param, CLASSIFIERS, tmp_path_factory)


def rows_in_three_ways(runtime: Runtime, items: list[Item]) -> list[list[dict[str, np.ndarray]]]:
    """The rows of `items`, in their order: each alone, all at once, all at once shuffled."""
    order = random.Random(1).sample(range(len(items)), len(items))
    shuffled = dict(zip(order, runtime.run(prepared(runtime, [items[i] for i in order]), 0).rows, strict=True))
    alone = [runtime.run(prepared(runtime, [item]), 0).rows[0] for item in items]
    together = runtime.run(prepared(runtime, items), 0).rows
    return [alone, together, [shuffled[i] for i in range(len(items))]]


def prepared(runtime: Runtime, items: list[Item]) -> list[Prepared]:
    entries = runtime.prepare(items)
    assert all(isinstance(entry, Prepared) for entry in entries)
    return entries


def vectors(runtime: Runtime, items: list[Item], stream: int = 0) -> np.ndarray:
    return np.stack([row["dense"] for row in runtime.run(prepared(runtime, items), stream).rows])


def scores(runtime: Runtime, items: list[Item], stream: int = 0) -> np.ndarray:
    return np.array([row["score"] for row in runtime.run(prepared(runtime, items), stream).rows])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def some_texts(count: int) -> list[str]:
    words = ["the", "of", "paris", "london", "berlin", "capital", "france", "fish", "shoal", "swim", "small"]
    rng = random.Random(count)
    return [" ".join(rng.choices(words, k=rng.choice([1, 2, 3, 5, 8, 13, 40, 80]))) for _ in range(count)]


def test_every_runtime_in_the_folder_is_tried_here():
    modules = [module.name for module in pkgutil.iter_modules(shoal.runtimes.__path__)]
    modules = [name for name in modules if not name.startswith("pytorch_")]  # import an extra, and open nothing
    runtimes = {
        name for name in modules if vars(importlib.import_module(f"shoal.runtimes.{name}")).get("open_runtime")
        not in (None, open_runtime)
    }  # fmt: skip
    for tried in (ENCODERS, SPARSE, MULTIVECTOR, SCORERS, CLASSIFIERS):
        assert runtimes == {runtime for runtime, _ in tried.values()}


def test_a_runtime_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InvalidInput, match="abacus"):
        open_runtime(tmp_path, virtual_encoder(tmp_path), Profile(runtime="abacus"))


def test_an_item_that_cannot_be_served_gets_its_error_and_its_neighbours_are_prepared(encoder):
    runtime, facts = encoder
    long = "fish " * 1000
    entries = runtime.prepare(
        [
            Item("fish"),
            Item(""),
            Item("fish", pair="swim"),
            Item(long, truncate="error"),
            Item(ids=[-1]),
            Item(long),
        ]
    )
    kinds = [Prepared, EmptyInput, InvalidInput, InputTooLong, InvalidInput, Prepared]
    assert [type(entry) for entry in entries] == kinds
    assert entries[-1].tokens == facts.max_tokens
    assert entries[-1].truncated


def test_a_text_whose_tokens_are_asked_for_needs_no_computing(encoder):
    tokens, also, refused = encoder[0].prepare([Item("fish swim", kinds=("tokens",)), Item("fish"), Item("")])
    assert [type(also), type(refused)] == [Prepared, EmptyInput]
    assert [text for text in tokens.texts if text in ("fish", "swim")] == ["fish", "swim"]
    ids, places = (tokens.tensors[f"tokens.{name}"].numpy() for name in ("ids", "places"))
    assert [tuple(place) for place in places.tolist() if place[0] >= 0] == [(0, 4), (5, 9)]
    assert set(also.ids) <= set(ids.tolist())


def test_a_model_that_scores_tokenises_as_well(scorer):
    (tokens,) = scorer.prepare([Item("fish swim", kinds=("tokens",))])
    assert "swim" in tokens.texts


def test_a_vector_has_the_width_that_the_facts_say_in_fp32(encoder):
    runtime, facts = encoder
    (row,) = runtime.run(prepared(runtime, [Item("fish")]), 0).rows
    assert list(row) == ["dense"]
    assert row["dense"].shape == (facts.dims,)
    assert row["dense"].dtype == np.float32


def test_a_text_gives_the_same_vector_alone_batched_and_shuffled_among_long_neighbours(encoder):
    runtime, _ = encoder
    items = [Item(text) for text in some_texts(23)]
    alone = np.concatenate([vectors(runtime, [item]) for item in items])
    order = random.Random(1).sample(range(len(items)), len(items))
    shuffled = np.empty_like(alone)
    shuffled[order] = vectors(runtime, [items[i] for i in order])
    assert cosines(alone, vectors(runtime, items)).min() >= 0.9999
    assert cosines(alone, shuffled).min() >= 0.9999


def test_texts_of_every_length_up_to_the_limit_and_beyond_have_finite_vectors(encoder):
    runtime, facts = encoder
    room = facts.max_tokens - 2
    items = [Item("fish " * words) for words in (1, 2, room - 1, room, room + 1)]
    assert np.isfinite(vectors(runtime, items)).all()
    batch = prepared(runtime, items)
    assert [p.truncated for p in batch] == [False] * 4 + [True]
    assert cosines(*vectors(runtime, [Item("fish " * room), Item("fish " * (room + 1))])) >= 0.9999 or (
        facts.family == "virtual"  # makes its vector up from the whole text
    )


def test_each_item_of_a_batch_may_ask_for_its_own_width_and_norm(encoder):
    runtime, facts = encoder
    half = facts.matryoshka[0]
    items = [Item("fish"), Item("fish", dims=half), Item("fish", normalize=False), Item("fish", normalize=True)]
    rows = [row["dense"] for row in runtime.run(prepared(runtime, items), 0).rows]
    assert [len(row) for row in rows] == [facts.dims, half, facts.dims, facts.dims]
    assert np.isclose(np.linalg.norm(rows[3]), 1, atol=1e-5)
    assert np.allclose(rows[0], rows[3] if facts.normalize else rows[2], atol=1e-5)
    assert np.isclose(np.linalg.norm(rows[1]), 1, atol=1e-5) == facts.normalize
    assert cosines(rows[1], rows[0][:half]) >= 0.9999


def test_two_streams_at_once_give_the_numbers_that_one_alone_gives(encoder):
    runtime, _ = encoder
    batches = [[Item(text) for text in some_texts(count)] for count in range(1, 17)]
    expected = [vectors(runtime, batch) for batch in batches]
    together = Barrier(2)

    def work(stream: int) -> list[np.ndarray]:
        together.wait()
        return [vectors(runtime, batch, stream) for batch in batches[stream::2]]

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(work, range(2)))
    for stream in range(2):
        for wanted, got in zip(expected[stream::2], found[stream], strict=True):
            assert cosines(wanted, got).min() >= 0.9999


def test_the_tokens_computed_are_at_least_those_asked_for(encoder):
    runtime, _ = encoder
    batch = prepared(runtime, [Item(text) for text in some_texts(9)])
    asked = sum(p.tokens for p in batch)
    assert asked <= runtime.run(batch, 0).tokens < 20 * asked


def test_rows_are_still_the_same_after_the_next_batch(encoder):
    runtime, _ = encoder
    (first,) = runtime.run(prepared(runtime, [Item("fish", normalize=False)]), 0).rows
    copy = first["dense"].copy()
    runtime.run(prepared(runtime, [Item("swim", normalize=False)]), 0)
    assert np.array_equal(first["dense"], copy)


def test_a_score_is_one_number_in_fp32(scorer):
    (row,) = scorer.run(prepared(scorer, [Item("fish", pair="swim")]), 0).rows
    assert list(row) == ["score"]
    assert row["score"].shape == ()
    assert row["score"].dtype == np.float32


def test_a_pair_gets_the_same_score_alone_batched_and_shuffled_among_long_neighbours(scorer):
    items = [Item("capital of france", pair=text) for text in some_texts(23)]
    alone = np.concatenate([scores(scorer, [item]) for item in items])
    order = random.Random(1).sample(range(len(items)), len(items))
    shuffled = np.empty_like(alone)
    shuffled[order] = scores(scorer, [items[i] for i in order])
    assert np.allclose(alone, scores(scorer, items), atol=1e-4)
    assert np.allclose(alone, shuffled, atol=1e-4)
    assert np.ptp(alone) > 0.01


def test_the_order_of_a_pair_matters(scorer):
    one, other = scores(scorer, [Item("paris", pair="the small fish"), Item("the small fish", pair="paris")])
    assert abs(one - other) > 1e-3


def test_what_cannot_be_scored_gets_its_error(scorer):
    entries = scorer.prepare(
        [Item("fish", pair="swim"), Item("fish"), Item("fish", pair=" "), Item(ids=[5]), Item("", pair="fish")]
    )
    assert [type(entry) for entry in entries] == [Prepared, InvalidInput, EmptyInput, InvalidInput, EmptyInput]


@pytest.mark.parametrize("is_query", [True, False])
def test_a_sparse_vector_has_ascending_indices_and_weights_above_0_whatever_the_batch(sparse, is_query):
    items = [Item(text, kinds=("sparse",), is_query=is_query) for text in [*some_texts(23), "a capital"]]
    alone, *others = rows_in_three_ways(sparse, items)
    for row in alone:
        indices, values = row["sparse.indices"], row["sparse.values"]
        assert list(row) == ["sparse.indices", "sparse.values"]
        assert (indices.dtype, values.dtype, indices.shape) == (np.int32, np.float32, values.shape)
        assert np.all(np.diff(indices) > 0)
        assert np.all(values > 0)
    assert len(alone[-1]["sparse.values"]) > 1
    for rows in others:
        for one, row in zip(alone, rows, strict=True):
            np.testing.assert_allclose(dotted(row), dotted(one), atol=1e-4)


def dotted(row: dict[str, np.ndarray]) -> np.ndarray:
    found = np.zeros(1000, np.float32)
    found[row["sparse.indices"]] = row["sparse.values"]
    return found


@pytest.mark.parametrize("is_query", [True, False])
def test_every_token_has_a_vector_of_length_one_that_is_the_same_whatever_the_batch(multivector, is_query):
    runtime, facts = multivector
    items = [Item(text, kinds=("multivector",), is_query=is_query) for text in some_texts(23)]
    alone, *others = rows_in_three_ways(runtime, items)
    for row in alone:
        assert list(row) == ["multivector"]
        assert row["multivector"].dtype == np.float32
        assert row["multivector"].shape[1] == facts.multivector.dims
        assert np.allclose(np.linalg.norm(row["multivector"], axis=1), 1, atol=1e-5)
    for rows in others:
        for one, row in zip(alone, rows, strict=True):
            assert cosines(one["multivector"], row["multivector"]).min() >= 0.9999


def test_a_query_is_filled_up_and_a_document_is_cut_each_to_its_own_length(multivector):
    runtime, facts = multivector
    asked = facts.multivector
    items = [
        Item(text, kinds=("multivector",), is_query=is_query)
        for text in ("fish", "fish " * 100)
        for is_query in (True, False)
    ]
    lengths = [len(row["multivector"]) for row in runtime.run(prepared(runtime, items), 0).rows]
    marker = bool(asked.document_marker)
    assert lengths == [asked.query_tokens, 3 + marker, asked.query_tokens, asked.document_tokens]
    assert [p.truncated for p in prepared(runtime, items)] == [False, False, True, True]


def test_a_limit_below_a_querys_own_length_is_kept(multivector):
    runtime, _ = multivector
    (row,) = runtime.run(
        prepared(runtime, [Item("fish", kinds=("multivector",), is_query=True, max_tokens=8)]), 0
    ).rows
    assert len(row["multivector"]) == 8


def test_a_kind_that_the_model_has_not_got_is_refused_by_name(encoder):
    runtime, _ = encoder
    error, also = runtime.prepare([Item("fish", kinds=("sparse",)), Item("fish", kinds=("dense", "multivector"))])
    assert (type(error), type(also)) == (InvalidInput, InvalidInput)
    assert "dense vectors, not sparse" in error.message
    assert "not multivector" in also.message


def test_a_model_with_several_labels_gives_a_logit_for_each_of_a_pair_or_of_one_text(classifier):
    runtime, facts = classifier
    items = [Item("capital of france", pair=text) for text in some_texts(9)] + [
        Item(text) for text in some_texts(9)
    ]
    alone, *others = rows_in_three_ways(runtime, items)
    assert all(row["score"].shape == (len(facts.labels),) for row in alone)
    for rows in others:
        for one, row in zip(alone, rows, strict=True):
            np.testing.assert_allclose(row["score"], one["score"], atol=1e-4)
    assert np.ptp(np.stack([row["score"] for row in alone]), axis=0).min() > 0.01


OFFLINE = """
import sys
from pathlib import Path
import msgspec
from shoal.protocol.facts import Facts, MultiVector, Profile, Sparse
from shoal.protocol.items import Item
calls = []
watched = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname", "urllib.Request")
sys.addaudithook(lambda event, args: calls.append((event, args)) if event in watched else None)
from shoal.runtimes import open_runtime
facts = msgspec.json.decode(sys.argv[2], type=Facts)
runtime = open_runtime(Path(sys.argv[1]), facts, msgspec.json.decode(sys.argv[3], type=Profile))
runtime.run(runtime.prepare([Item("fish")]), 0)
assert not calls, calls
telling = [name for name in sys.modules if "telemetry" in name]
assert not telling, telling
"""


@pytest.mark.parametrize("name", ["openvino", "onnx-built", "onnx-published", "virtual"])
def test_nothing_is_sent_anywhere_by_loading_and_running_a_model(tmp_path, name):
    runtime, write = ENCODERS[name]
    facts, profile = write(tmp_path), Profile(runtime=runtime)
    encoded = [msgspec.json.encode(value).decode() for value in (facts, profile)]
    command = [sys.executable, "-c", OFFLINE, str(tmp_path), *encoded]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
