"""The published SDK of the wire we are compatible with, where it is installed, on our bytes."""

import logging

import httpx
import numpy as np
import pytest
from answering import EVERY_KIND, answer, compute, vector

from shoal.protocol.errors import Fault
from shoal.protocol.items import Item, Output

sie_sdk = pytest.importorskip("sie_sdk")


@pytest.fixture
def connect():
    """The real client; its transport hands the request's bytes to the dialect and the reply's bytes back."""
    opened: list[httpx.Client] = []

    def make(compute=compute, facts=None):
        def serve(request: httpx.Request) -> httpx.Response:
            version, route, model = request.url.path.strip("/").split("/", 2)
            assert (version, model) == ("v1", "org/m")
            asked = {"content_type": request.headers["content-type"], "accept": request.headers["accept"]}
            reply = answer("native", route, request.read(), compute=compute, facts=facts, **asked)
            return httpx.Response(reply.status, headers=list(reply.headers), content=reply.body)

        opened.append(httpx.Client(base_url="http://shoal", transport=httpx.MockTransport(serve)))
        opened[-1].headers = {"accept": "application/msgpack", "content-type": "application/msgpack"}
        return sie_sdk.SIEClient("http://shoal", http_client=opened[-1])

    yield make
    for client in opened:
        client.close()


def test_the_sdk_reads_our_vectors_usage_and_times_without_a_warning(connect, caplog):
    with caplog.at_level(logging.WARNING):
        one, two = connect().encode("org/m", [{"text": "one", "id": "x"}, {"text": "two"}])
    assert caplog.records == []
    assert np.array_equal(one["dense"], vector("one"))
    assert np.array_equal(two["dense"], vector("two"))
    assert (one["id"], one["model"], one["timing"]["total_ms"]) == ("x", "org/m", 12.5)
    assert one["request"] == {"id": "r-1", "usage": {"input_tokens": 6}}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "binary", "ubinary"])
def test_the_sdk_reads_every_dtype(connect, dtype):
    got = connect().encode("org/m", {"text": "one"}, output_dtype=dtype)["dense"]
    assert got.shape == ((2,) if "binary" in dtype else (12,))
    assert got.dtype == (np.uint8 if "binary" in dtype else np.dtype(dtype))


def test_the_sdks_options_reach_the_model(connect):
    client = connect()
    got = client.encode("org/m", {"text": "a"}, is_query=True, options={"normalize": None})
    assert np.array_equal(got["dense"], vector("a", prompt="query: "))
    got = client.encode("org/m", {"text": "a"}, instruction="Find: ", output_types=["dense"])
    assert np.array_equal(got["dense"], vector("a", prompt="Find: "))


def test_the_sdk_reads_our_scores(connect):
    got = connect().score("org/m", {"text": "q", "id": "the-query"}, [{"text": "one", "id": "a"}, {"text": "two"}])
    assert (got["model"], got["query_id"]) == ("org/m", "the-query")
    expected = {
        name: compute(Item("q", pair=text)).tensors["score"].numpy().item()
        for name, text in (("a", "one"), ("item-1", "two"))
    }
    assert {each["item_id"]: each["score"] for each in got["scores"]} == expected
    assert [each["rank"] for each in got["scores"]] == [0, 1]
    assert got["usage"]["input_tokens"] == 8


def test_the_sdk_keeps_neighbours_of_a_bad_item(connect):
    good, bad, last = connect().encode("org/m", [{"text": "a"}, {"text": ""}, {"text": "c"}])
    assert "dense" not in bad
    assert np.array_equal(good["dense"], vector("a"))
    assert np.array_equal(last["dense"], vector("c"))


def test_the_sdk_raises_its_own_errors(connect):
    with pytest.raises(sie_sdk.RequestError) as caught:
        connect().encode("org/m", {"text": " "})
    assert (caught.value.status_code, caught.value.code) == (400, "EMPTY_INPUT")


def test_the_sdk_stops_at_once_when_a_load_failed_or_a_text_is_too_long(connect):
    from sie_sdk.client.errors import ModelLoadFailedError

    fault = Fault("MODEL_LOAD_FAILED", "bad file", {"error_class": "BrokenFile", "attempts": 3})
    client = connect(compute=lambda item: Output(fault=fault))
    with pytest.raises(ModelLoadFailedError) as caught:
        client.encode("org/m", {"text": "a"})
    assert (caught.value.error_class, caught.value.attempts, caught.value.permanent) == (
        "BrokenFile",
        3,
        True,
    )
    with pytest.raises(sie_sdk.RequestError) as too_long:
        connect().encode("org/m", {"text": "w " * 40}, options={"truncate": "error"})
    assert (too_long.value.status_code, too_long.value.code) == (413, "INPUT_TOO_LONG")


def test_the_sdk_reads_every_kind_of_vector_at_once(connect):
    client = connect(facts=EVERY_KIND)
    (got,) = client.encode("org/m", [{"text": "one two"}], output_types=["dense", "sparse", "multivector"])
    dense = vector("one two")
    assert np.array_equal(got["dense"], dense)
    assert np.array_equal(got["sparse"]["indices"], np.flatnonzero(dense > 0))
    assert np.array_equal(got["sparse"]["values"], dense[dense > 0])
    assert (got["sparse"]["indices"].dtype, got["sparse"]["values"].dtype) == (np.int32, np.float32)
    assert (got["multivector"].shape, got["multivector"].dtype) == ((2, 3), np.float32)


@pytest.mark.parametrize(
    ("dtype", "values", "tokens"),
    [("float16", np.float16, np.float16), ("int8", np.float32, np.int8), ("binary", np.float32, np.uint8)],
)
def test_the_sdk_reads_every_kind_in_the_dtype_asked_for(connect, dtype, values, tokens):
    kinds = ["sparse", "multivector"]
    got = connect(facts=EVERY_KIND).encode("org/m", {"text": "one"}, output_types=kinds, output_dtype=dtype)
    assert "dense" not in got
    assert (got["sparse"]["values"].dtype, got["multivector"].dtype) == (values, tokens)


def test_the_sdk_reads_the_empty_sparse_vector_of_an_empty_text(connect):
    got = connect(facts=EVERY_KIND).encode("org/m", [{"text": ""}, {"text": "a"}], output_types=["sparse"])
    assert got[0]["sparse"]["indices"].shape == got[0]["sparse"]["values"].shape == (0,)
    assert len(got[1]["sparse"]["indices"])


def test_the_sdks_own_maxsim_agrees_with_ours_whether_it_sends_texts_or_vectors(connect):
    from sie_sdk.scoring import maxsim

    client = connect(facts=EVERY_KIND)
    query = client.encode("org/m", {"text": "what is"}, output_types=["multivector"], is_query=True)
    texts = ["one", "two two", "three"]
    documents = client.encode(
        "org/m", [{"text": text} for text in texts], output_types=["multivector"], is_query=False
    )
    expected = maxsim(query["multivector"], [each["multivector"] for each in documents])
    sent = [{"multivector": each["multivector"]} for each in documents]
    for asked, given in (({"text": "what is"}, [{"text": text} for text in texts]), (query, sent)):
        scores = client.score("org/m", {"id": "q"} | asked, given)["scores"]
        assert [each["score"] for each in scores] == pytest.approx(sorted(expected, reverse=True), rel=1e-6)


def test_the_sdk_is_told_what_is_wrong_with_its_vectors(connect):
    client = connect(facts=EVERY_KIND)
    with pytest.raises(sie_sdk.RequestError, match="4 dims a token; this model has 3") as refused:
        client.score("org/m", {"multivector": np.ones((2, 4), np.float32)}, [{"text": "a"}])
    assert refused.value.code == "INVALID_INPUT"
