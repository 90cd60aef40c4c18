"""Both clients, as one suite, against a real HTTP server: a bare ASGI app that speaks the native wire."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from wire_server import Wire, refused, serving, vector

import shoal
from shoal.client import BadAnswer, ItemsFailed, Ranked, ServerUnreachable
from shoal.protocol.errors import (
    DeadlineExceeded,
    EmptyInput,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    QueueFull,
    ShoalError,
)


class Awaited:
    """An AsyncClient whose methods are called as those of the blocking one."""

    def __init__(self, client: shoal.AsyncClient, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            return await getattr(self._client, name)(*args, **options)

        return lambda *args, **options: self._runner.run(call(*args, **options))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, list[Wire]]]:
    """A running server's URL, and the one Wire it passes requests to."""
    wires: list[Wire] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await wires[0](scope, receive, send)

    with serving(app) as url:
        yield url, wires


@pytest.fixture
def wire(served: tuple[str, list[Wire]]) -> Wire:
    served[1][:] = [Wire()]
    return served[1][0]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes a client of the kind under test; they are closed after the test."""
    with asyncio.Runner() as runner:
        made: list[Any] = []

        def make(*args: Any, **options: Any) -> Any:
            if request.param == "sync":
                made.append(shoal.Client(*args, **options))
            else:
                made.append(Awaited(shoal.AsyncClient(*args, **options), runner))
            return made[-1]

        yield make
        for client in made:
            client.close()


@pytest.fixture
def client(connect: Callable[..., Any], served: tuple[str, list[Wire]], wire: Wire) -> Any:
    return connect(served[0])


def test_a_list_gives_a_matrix_and_a_single_string_a_vector(client: Any) -> None:
    assert np.array_equal(client.encode("a/b", ["one", "three"]), [vector("one"), vector("three")])
    assert np.array_equal(client.encode("a/b", "one"), vector("one"))
    assert np.array_equal(client.encode("a/b", ["one"]), [vector("one")])


def test_what_comes_back_may_be_written_to(client: Any) -> None:
    for vectors in (
        client.encode("m", "one"),
        client.encode("m", ["one"]),
        *client.encode("m", ["one"], errors="return"),
    ):
        vectors *= 2


def test_a_thousand_texts_are_asked_about_in_parts_and_returned_in_order(client: Any, wire: Wire) -> None:
    texts = [f"{'x' * (index % 7)}{index}" for index in range(1000)]
    assert np.array_equal(client.encode("m", iter(texts)), [vector(text) for text in texts])
    assert sorted(len(body["items"]) for body in wire.bodies) == [232, 256, 256, 256]


def test_large_texts_are_asked_about_in_parts_of_a_few_megabytes(client: Any, wire: Wire) -> None:
    texts = ["x" * 1_500_000, "y" * 1_500_000, "z" * 5_000_000, "w"]
    assert client.encode("m", texts)[:, 0].tolist() == [1_500_000, 1_500_000, 5_000_000, 1]
    assert sorted(len(body["items"]) for body in wire.bodies) == [1, 1, 2]


def test_no_texts_give_no_rows_and_no_request(client: Any, wire: Wire) -> None:
    assert client.encode("m", []).shape == (0, 0)
    assert client.encode("m", (), dimensions=64, dtype="float16").shape == (0, 64)
    assert client.encode("m", [], errors="return") == []
    assert client.score("m", "q", []) == []
    assert wire.paths == []


def test_what_a_client_raises_is_found_where_the_client_is() -> None:
    assert (shoal.ItemsFailed, shoal.ServerUnreachable) == (ItemsFailed, ServerUnreachable)
    assert issubclass(shoal.ItemsFailed, shoal.ShoalError)


def test_a_kind_that_there_is_not_is_refused_before_anything_is_sent(client: Any, wire: Wire) -> None:
    with pytest.raises(InvalidInput, match="it is one of dense, sparse, multivector"):
        client.encode("m", ["a"], kinds=["sparse"])
    assert wire.paths == []


def test_a_kind_that_the_model_has_not_is_told_with_how_to_ask_for_what_it_has(client: Any, wire: Wire) -> None:
    told = {"code": "INVALID_INPUT", "message": "no", "gives": ["sparse"], "param": "output_types"}
    wire.script = [(400, {"content-type": "application/json"}, json.dumps({"detail": told}).encode())]
    with pytest.raises(InvalidInput) as refused:
        client.encode("m", ["a"])
    assert refused.value.__notes__ == ["Ask for it with kinds='sparse'."]


def test_without_a_kind_the_model_chooses_and_dense_rows_are_stacked(client: Any, wire: Wire) -> None:
    assert client.encode("m", ["a", "bb"], kinds=None).shape == (2, 3)
    assert "output_types" not in wire.bodies[0]["params"]


def test_what_was_asked_for_is_on_the_wire_and_nothing_else(client: Any, wire: Wire) -> None:
    client.encode("org/name:int8", "t")
    client.encode(
        "m", [{"text": "t", "id": "7"}], is_query=False, prompt_name="p", instruction="i", dimensions=2,
        dtype="int8", normalize=False, truncate="start",
    )  # fmt: skip
    client.score("m", "q", ["d"], raw=True, instruction="i", truncate="error")
    assert wire.paths == ["/v1/encode/org/name:int8", "/v1/encode/m", "/v1/score/m"]
    plain, rich, score = wire.bodies
    assert plain == {
        "items": [{"text": "t"}],
        "params": {"output_types": ["dense"], "output_dtype": "float32"},
    }
    assert rich["items"] == [{"text": "t", "id": "7"}]
    assert rich["params"] == {
        "output_types": ["dense"],
        "output_dtype": "int8",
        "instruction": "i",
        "options": {
            "is_query": False,
            "prompt_name": "p",
            "dimensions": 2,
            "normalize": False,
            "truncate": "start",
        },
    }
    assert score == {
        "query": {"text": "q"},
        "items": [{"text": "d", "id": "0"}],
        "instruction": "i",
        "options": {"raw": True, "truncate": "error"},
    }
    assert 0 < int(wire.headers[0]["x-shoal-timeout-ms"]) <= 119_500
    assert wire.headers[0]["content-type"] == wire.headers[0]["accept"] == "application/msgpack"


def test_a_failed_text_raises_with_its_index_and_the_vectors_of_its_neighbours(client: Any) -> None:
    with pytest.raises(ItemsFailed, match="1 of 3 inputs failed; the first has index 1") as caught:
        client.encode("m", ["one", "", "three"])
    assert caught.value.indices == [1]
    assert isinstance(caught.value.errors[1], EmptyInput)
    assert np.array_equal(caught.value.results[0], vector("one"))
    assert caught.value.results[1] is None
    assert np.array_equal(caught.value.results[2], vector("three"))


def test_errors_can_be_had_in_the_places_of_their_texts(client: Any) -> None:
    first, second = client.encode("m", ["", "two"], errors="return")
    assert isinstance(first, EmptyInput)
    assert np.array_equal(second, vector("two"))


def test_a_part_that_failed_whole_leaves_the_other_parts_their_results(client: Any) -> None:
    with pytest.raises(ItemsFailed) as caught:
        client.encode("m", ["x"] * 256 + [""])
    assert caught.value.indices == [256]
    assert np.array_equal(caught.value.results[255], vector("x"))


def test_a_single_text_that_failed_raises_its_own_error(client: Any) -> None:
    with pytest.raises(EmptyInput):
        client.encode("m", "")
    with pytest.raises(ItemsFailed):
        client.encode("m", [""])


def test_a_request_refused_for_what_it_asked_is_no_matter_of_its_items(client: Any, wire: Wire) -> None:
    body = b'{"detail": {"code": "EMPTY_INPUT", "message": "query: empty", "param": "query"}}'
    wire.script = [(400, {"content-type": "application/json"}, body)]
    with pytest.raises(EmptyInput, match="query"):
        client.score("m", "", ["a", "b"])


def test_documents_are_ranked_with_their_own_places_and_ids(client: Any) -> None:
    documents = ["aa", {"text": "aaaa", "id": "best"}, "a", "bb"]
    ranked = client.score("m", "q", documents)
    assert ranked == [
        Ranked(1, 4.0, documents[1], "best"),
        Ranked(0, 2.0, "aa"),
        Ranked(3, 2.0, "bb"),
        Ranked(2, 1.0, "a"),
    ]
    assert client.score("m", "q", documents, top_n=2) == ranked[:2]
    assert client.score("m", {"text": "q"}, "alone") == [Ranked(0, 5.0, "alone")]


def test_many_documents_are_ranked_as_one_list(client: Any, wire: Wire) -> None:
    documents = ["x" * (1 + index * 7 % 600) for index in range(600)]
    ranked = client.score("m", "q", documents, top_n=300)
    lengths = [len(entry.document) for entry in ranked]
    assert lengths == sorted((len(document) for document in documents), reverse=True)[:300]
    assert all(documents[entry.index] is entry.document for entry in ranked)
    assert len(wire.bodies) == 3


def test_a_document_that_failed_raises_with_the_ranking_of_the_others(client: Any) -> None:
    with pytest.raises(ItemsFailed) as caught:
        client.score("m", "q", ["a", "", "aaa"])
    assert caught.value.indices == [1]
    assert [entry.index for entry in caught.value.results] == [2, 0]


def test_a_top_n_below_one_is_refused(client: Any) -> None:
    with pytest.raises(InvalidInput, match="top_n is 0"):
        client.score("m", "q", ["a"], top_n=0)


def test_a_busy_server_is_asked_again(client: Any, wire: Wire) -> None:
    wire.script = [
        refused(503, "QUEUE_FULL", key="error", retry_after="0.01"),
        refused(429, "RATE_LIMIT", key="error", retry_after="0.01"),
    ]
    assert np.array_equal(client.encode("m", "one"), vector("one"))
    assert len(wire.paths) == 3
    assert wire.bodies[0] == wire.bodies[2]


def test_a_server_that_stays_busy_is_given_up_with_its_own_words(
    connect: Callable[..., Any], served: tuple[str, list[Wire]], wire: Wire
) -> None:
    wire.script = [refused(503, "QUEUE_FULL", key="error", retry_after="60")]
    with pytest.raises(QueueFull, match="said QUEUE_FULL"):
        connect(served[0], timeout_s=5.0).encode("m", "one")
    assert len(wire.paths) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(404, "MODEL_NOT_FOUND", ModelNotFound), (500, "INFERENCE_ERROR", InferenceError)],
)
def test_what_would_fail_again_is_not_asked_again(
    client: Any, wire: Wire, status: int, code: str, kind: type[ShoalError]
) -> None:
    wire.script = [refused(status, code)]
    with pytest.raises(kind, match=f"said {code}"):
        client.encode("m", "one")
    assert len(wire.paths) == 1


def test_an_error_of_a_later_part_says_which_inputs_it_was_asked_about(
    connect: Callable[..., Any], served: tuple[str, list[Wire]], wire: Wire
) -> None:
    # One request at a time: of several, one that nobody waits for any more may reach the next test's wire.
    client = connect(served[0], concurrency=1)
    usual = wire.encode
    wire.encode = lambda texts: refused(400, "INVALID_INPUT") if "bad" in texts else usual(texts)  # type: ignore[method-assign]
    with pytest.raises(InvalidInput) as caught:
        client.encode("m", ["x"] * 300 + ["bad"] + ["x"] * 2000)
    assert "256 to 511" in caught.value.__notes__[0]


def test_the_models_can_be_listed_and_looked_at(client: Any, wire: Wire) -> None:
    assert client.models() == [{"name": "a/b"}]
    assert client.models(catalog=True) == [{"name": "a/b"}]
    assert client.model("a/b") == {"name": "a/b"}
    assert wire.paths == ["/v1/models", "/v1/models?catalog=1", "/v1/models/a/b"]


def test_a_server_is_ready_when_it_says_so_and_is_asked_only_once(client: Any, wire: Wire) -> None:
    assert client.ready() is True
    wire.script = [(503, {}, b"loading")]
    assert client.ready() is False
    assert wire.paths == ["/readyz", "/readyz"]


def test_a_page_that_is_no_answer_is_said_to_be_none(client: Any, wire: Wire) -> None:
    page = b"<html>Welcome to the hotel's network</html>"
    wire.script = [(200, {"content-type": "text/html"}, page)] * 2
    with pytest.raises(BadAnswer, match="hotel"):
        client.encode("m", "one")
    with pytest.raises(BadAnswer, match="hotel"):
        client.models()


def test_key_and_priority_travel_with_every_request(
    connect: Callable[..., Any], served: tuple[str, list[Wire]], wire: Wire
) -> None:
    connect(served[0], "secret", priority="batch").encode("m", "one")
    assert wire.headers[0]["authorization"] == "Bearer secret"
    assert wire.headers[0]["x-shoal-priority"] == "batch"


def test_a_server_on_this_machine_is_reached_past_the_proxies_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., Any], served: tuple[str, list[Wire]], wire: Wire
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert connect(served[0], connect_retry_s=0.0).ready() is True


def test_where_no_server_answers_the_url_and_the_remedy_are_told(connect: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = connect(url, connect_retry_s=0.0)
        with pytest.raises(ServerUnreachable, match=f"no server answers at {url}.*shoal serve"):
            client.encode("m", "one")
        assert client.ready() is False


class Socket:
    """A server that handles each connection with the next of `behaviours`, the last one for ever."""

    def __init__(self, *behaviours: Callable[[socket.socket], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.over = threading.Event()
        self.connections = 0
        self._behaviours = list(behaviours)
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            connection = self._listening.accept()[0]
            with connection:
                if self.over.is_set():
                    return
                self.connections += 1
                connection.recv(65536)
                behave = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
                behave(connection)

    def __enter__(self) -> "Socket":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        socket.create_connection(self._listening.getsockname()).close()
        self._thread.join()
        self._listening.close()


def hang_up(connection: socket.socket) -> None:
    """Nothing: the connection is closed without a word."""


def answer(connection: socket.socket) -> None:
    body = b'{"models": [{"a": "b"}]}'
    connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def test_a_connection_that_breaks_once_is_tried_again(connect: Callable[..., Any]) -> None:
    with Socket(hang_up, answer) as server:
        assert connect(server.url).models() == [{"a": "b"}]
        assert server.connections == 2


def test_a_connection_that_keeps_breaking_is_an_error_of_the_connection(connect: Callable[..., Any]) -> None:
    with Socket(hang_up) as server:
        with pytest.raises(ConnectionError, match="broke before the answer came"):
            connect(server.url).models()
        assert server.connections == 2


def test_an_answer_that_trickles_ends_with_the_deadline(connect: Callable[..., Any]) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while not server.over.wait(0.02):
                connection.sendall(b" ")
        except OSError:
            return  # the client gave up, as it should

    with Socket(trickle) as server, pytest.raises(DeadlineExceeded, match=r"within 0\.3 s"):
        connect(server.url, timeout_s=0.3).models()
