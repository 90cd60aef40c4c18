"""Dense, sparse and token vectors at once, by sie-sdk and by our own client, from a server of stand-ins."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import sie_sdk
from sie_sdk.client.errors import RequestError
from sie_sdk.scoring import maxsim

import shoal
from names import VIRTUAL_EVERY_KIND, VIRTUAL_LABELS
from shoal.catalog.store import Store
from shoal.client import ItemsFailed
from shoal.testing.cluster import Cluster, cluster
from shoal.testing.server import Server, serving

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("impatient_sdk")]

TEXTS = ["one word", "two words more", "three"]
EVERY_KIND = ["dense", "sparse", "multivector"]


@pytest.fixture(scope="module", params=["serve", pytest.param("cluster", marks=pytest.mark.slow)])
def stand_ins(request, tmp_path_factory) -> Iterator[Server | Cluster]:
    store = Store(tmp_path_factory.mktemp("every-kind"))
    for name in (VIRTUAL_EVERY_KIND, VIRTUAL_LABELS):
        store.add(name)
    with serving(store.home) if request.param == "serve" else cluster(store.home, nodes=1) as running:
        yield running


@pytest.fixture
def sdk(stand_ins):
    with sie_sdk.SIEClient(stand_ins.url, timeout_s=60, api_key="") as client:
        yield client


@pytest.fixture
def client(stand_ins):
    with shoal.Client(stand_ins.url, timeout_s=60) as client:
        yield client


@pytest.fixture
def plain(stand_ins):
    with httpx.Client(base_url=stand_ins.url, timeout=60) as client:
        yield client


def test_the_sdk_gets_every_kind_of_each_text_in_numpys_own_types(sdk):
    results = sdk.encode(VIRTUAL_EVERY_KIND, [{"text": text} for text in TEXTS], output_types=EVERY_KIND)
    for text, result in zip(TEXTS, results, strict=True):
        assert (result["dense"].shape, result["dense"].dtype) == ((384,), np.float32)
        assert (result["multivector"].shape, result["multivector"].dtype) == (
            (len(text.split()) + 2, 32),
            np.float32,
        )
        indices, values = result["sparse"]["indices"], result["sparse"]["values"]
        assert (indices.dtype, values.dtype, indices.shape) == (np.int32, np.float32, values.shape)
        assert (values > 0).all()
        assert (np.diff(indices) > 0).all()


@pytest.mark.parametrize(
    ("dtype", "dense", "sparse", "multivector"),
    [
        ("float16", np.float16, np.float16, np.float16),
        ("int8", np.int8, np.float32, np.int8),
        ("uint8", np.uint8, np.float32, np.uint8),
        ("binary", np.uint8, np.float32, np.uint8),
    ],
)
def test_the_sdk_gets_every_number_type(sdk, dtype, dense, sparse, multivector):
    got = sdk.encode(VIRTUAL_EVERY_KIND, {"text": "a b"}, output_types=EVERY_KIND, output_dtype=dtype)
    assert (got["dense"].dtype, got["sparse"]["values"].dtype, got["multivector"].dtype) == (
        dense,
        sparse,
        multivector,
    )
    assert got["multivector"].shape == (4, 4 if dtype == "binary" else 32)


def test_a_kind_that_a_model_has_not_is_refused_naming_those_it_has(sdk, client):
    with pytest.raises(RequestError, match="cannot encode"):
        sdk.encode(VIRTUAL_LABELS, {"text": "a"}, output_types=["sparse"])
    with pytest.raises(shoal.client.errors.ShoalError, match="float32 or float16"):
        client.encode(VIRTUAL_EVERY_KIND, "a", kinds="sparse", dtype="int8")


def test_the_sparse_vector_of_an_empty_text_is_empty_and_other_kinds_are_an_error_of_that_text(sdk, client):
    results = sdk.encode(VIRTUAL_EVERY_KIND, [{"text": ""}, {"text": "a"}], output_types=["sparse"])
    assert [len(result["sparse"]["indices"]) > 0 for result in results] == [False, True]
    with pytest.raises(ItemsFailed) as failed:
        client.encode(VIRTUAL_EVERY_KIND, ["a", ""], kinds="multivector")
    assert failed.value.indices == [1]
    assert failed.value.results[0].shape == (3, 32)


def test_our_client_gets_arrays_of_the_kind_it_asks_for(client, sdk):
    expected = sdk.encode(VIRTUAL_EVERY_KIND, [{"text": text} for text in TEXTS], output_types=EVERY_KIND)
    assert np.array_equal(client.encode(VIRTUAL_EVERY_KIND, TEXTS), [each["dense"] for each in expected])
    for (indices, values), each in zip(
        client.encode(VIRTUAL_EVERY_KIND, TEXTS, kinds="sparse"), expected, strict=True
    ):
        assert np.array_equal(indices, each["sparse"]["indices"])
        assert np.array_equal(values, each["sparse"]["values"])
    rows = client.encode(VIRTUAL_EVERY_KIND, TEXTS, kinds="multivector")
    assert all(np.array_equal(row, each["multivector"]) for row, each in zip(rows, expected, strict=True))
    assert client.encode(VIRTUAL_EVERY_KIND, TEXTS[0], kinds="multivector").shape == (4, 32)


def test_five_hundred_texts_of_each_kind_come_back_in_order(client):
    texts = [f"text {i}" for i in range(500)]
    for kinds in ("sparse", "multivector"):
        many = client.encode(VIRTUAL_EVERY_KIND, texts, kinds=kinds)
        assert len(many) == 500
        alone = client.encode(VIRTUAL_EVERY_KIND, texts[321], kinds=kinds)
        assert np.array_equal(many[321][1], alone[1])


def test_maxsim_of_texts_and_of_their_vectors_is_that_of_the_sdks_own_function(sdk, client):
    query = sdk.encode(VIRTUAL_EVERY_KIND, {"text": "a question"}, output_types=["multivector"], is_query=True)
    documents = client.encode(VIRTUAL_EVERY_KIND, TEXTS, kinds="multivector", is_query=False)
    expected = maxsim(query["multivector"], documents)
    found = client.score(VIRTUAL_EVERY_KIND, "a question", TEXTS)
    assert [entry.score for entry in found] == pytest.approx(sorted(expected, reverse=True), rel=1e-6)
    for ranked in (
        client.score(VIRTUAL_EVERY_KIND, query["multivector"], documents),
        client.score(VIRTUAL_EVERY_KIND, "a question", documents),
        client.score(VIRTUAL_EVERY_KIND, {"multivector": query["multivector"]}, TEXTS),
    ):
        assert [(e.index, pytest.approx(e.score)) for e in ranked] == [(e.index, e.score) for e in found]
    scores = sdk.score(VIRTUAL_EVERY_KIND, query, [{"multivector": each} for each in documents])["scores"]
    assert [entry["score"] for entry in scores] == pytest.approx([entry.score for entry in found], rel=1e-6)


def test_vectors_that_were_kept_are_scored_without_loading_a_model(tmp_path):
    store = Store(tmp_path)
    store.add(VIRTUAL_EVERY_KIND)
    rows = np.eye(32, dtype=np.float32)
    with serving(store.home) as running, shoal.Client(running.url, timeout_s=60) as client:
        found = client.score(VIRTUAL_EVERY_KIND, rows[:2], [rows[5:9], rows[1:3], rows[:3]])
        assert [(entry.index, entry.score) for entry in found] == [(2, 2.0), (1, 1.0), (0, 0.0)]
        assert running.runtime_pids() == []


def test_vectors_of_another_width_are_refused_and_the_width_is_named(client, sdk):
    wrong = np.ones((2, 31), np.float32)
    with pytest.raises(shoal.client.errors.ShoalError, match="31 dims a token; this model has 32"):
        client.score(VIRTUAL_EVERY_KIND, wrong, TEXTS)
    with pytest.raises(ItemsFailed) as failed:
        client.score(VIRTUAL_EVERY_KIND, "a question", [wrong, "text"])
    assert failed.value.indices == [0]


def test_of_several_labels_one_is_named_to_score_by_and_tei_gets_all(client, plain):
    scores = {
        label: client.score(VIRTUAL_LABELS, "q", ["a"], label=label)[0].score
        for label in ("contradiction", "entailment", "neutral")
    }
    assert sum(scores.values()) == pytest.approx(1)
    with pytest.raises(shoal.client.errors.ShoalError, match=r"label is missing; .*contradiction, entailment"):
        client.score(VIRTUAL_LABELS, "q", ["a"])
    found = plain.post("/predict", json={"inputs": ["q", "a"], "model": VIRTUAL_LABELS}).json()
    assert {entry["label"]: entry["score"] for entry in found} == pytest.approx(scores)


def test_a_model_with_labels_reads_a_lone_text_too(plain):
    found = plain.post("/predict", json={"inputs": "a text", "model": VIRTUAL_LABELS}).json()
    assert {entry["label"] for entry in found} == {"contradiction", "entailment", "neutral"}
    assert sum(entry["score"] for entry in found) == pytest.approx(1)


def test_tei_gives_sparse_and_token_vectors(plain, client):
    body = {"inputs": TEXTS, "truncate": True}
    sparse = plain.post("/embed_sparse", json=body).json()
    for entries, (indices, values) in zip(
        sparse, client.encode(VIRTUAL_EVERY_KIND, TEXTS, kinds="sparse"), strict=True
    ):
        assert [entry["index"] for entry in entries] == indices.tolist()
        assert [entry["value"] for entry in entries] == pytest.approx(values.tolist())
    tokens = plain.post("/embed_all", json=body).json()
    for rows, expected in zip(tokens, client.encode(VIRTUAL_EVERY_KIND, TEXTS, kinds="multivector"), strict=True):
        assert np.allclose(rows, expected)


def test_the_listing_says_which_kinds_a_model_gives_and_how_wide(sdk):
    model = sdk.get_model(VIRTUAL_EVERY_KIND)
    assert model["outputs"] == ["dense", "sparse", "multivector", "score"]
    assert model["dims"] == {"dense": 384, "multivector": 32}


def test_the_sdk_reads_capacity_from_health(sdk):
    assert sdk.get_capacity()["worker_count"] == 1
