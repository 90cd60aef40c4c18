"""The published SDK of the wire we are compatible with, where it is installed, on our bytes."""

import logging

import httpx
import numpy as np
import pytest
from answering import answer, compute, vector

from shoal.protocol.errors import Fault
from shoal.protocol.items import Item, Output

sie_sdk = pytest.importorskip("sie_sdk")


@pytest.fixture
def connect():
    """The real client; its transport hands the request's bytes to the dialect and the reply's bytes back."""
    opened: list[httpx.Client] = []

    def make(compute=compute):
        def serve(request: httpx.Request) -> httpx.Response:
            version, route, model = request.url.path.strip("/").split("/", 2)
            assert (version, model) == ("v1", "org/m")
            asked = {"content_type": request.headers["content-type"], "accept": request.headers["accept"]}
            reply = answer("native", route, request.read(), compute=compute, **asked)
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
    with pytest.raises(sie_sdk.RequestError, match="no adapter named 'mine'") as caught:
        connect().encode("org/m", {"text": "a"}, options={"lora": "mine"})
    assert (caught.value.status_code, caught.value.code) == (404, "MODEL_NOT_FOUND")


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
