"""Far more than can be answered: who is refused, how, and what becomes of the rest. Real server, real sockets."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import time

import httpx
import numpy as np
import pytest

from names import VIRTUAL, VIRTUAL_RERANKER
from shoal.lab.run import Request, Target
from shoal.testing.flood import Flood, flooding
from shoal.testing.server import serving

SLOW = "shoal:virtual:slow=0.01"
ANYBODY = {"content-type": "application/json", "accept": "application/json"}
ASKED = {
    f"/v1/encode/{VIRTUAL}": {"items": ["a text"]},
    "/v1/embeddings": {"model": VIRTUAL, "input": "a text"},
    "/v2/embed": {
        "model": VIRTUAL,
        "texts": ["a text"],
        "input_type": "search_query",
        "embedding_types": ["float"],
    },
    "/embed": {"model": VIRTUAL, "inputs": "a text"},
}


def requests(server, texts: list[str]) -> list[bytes]:
    bodies = ({"model": VIRTUAL, "input": text, "encoding_format": "base64"} for text in texts)
    target = Target("127.0.0.1", server.port)
    return [Request("/v1/embeddings", json.dumps(body).encode()).encode(target) for body in bodies]


@contextlib.contextmanager
def overloaded(server, connections=400):
    """While it lasts, a hundred texts a second are computed and all these connections want theirs next."""
    flood = Flood(server.port, requests(server, [f"{SLOW} {n}" for n in range(100)]), connections)
    with flooding(flood, rate=600):
        until = time.monotonic() + 30
        while ask(server, "/v1/embeddings").status_code == 200:
            assert time.monotonic() < until, "nobody is refused"
        yield


def ask(server, path: str, **headers: str) -> httpx.Response:
    return httpx.post(server.url + path, json=ASKED[path], headers=ANYBODY | headers, timeout=30)


def refusal(server, path: str, **headers: str) -> httpx.Response:
    """What most get; now and then one comes just when there is room."""
    answers = (ask(server, path, **headers) for _ in range(50))
    return next(answer for answer in answers if answer.status_code != 200)


@pytest.fixture(scope="module")
def busy(virtual_home):
    with serving(virtual_home, "--max-wait", "0.5") as server, overloaded(server):
        yield server


@pytest.mark.parametrize("path", list(ASKED))
def test_each_api_refuses_in_its_own_shape_and_says_why_and_when_to_come_back(busy, path):
    answer = refusal(busy, path)
    assert answer.status_code == (429 if path == "/embed" else 503)
    assert answer.headers["x-sie-error-code"] == "QUEUE_FULL"
    assert int(answer.headers["retry-after"]) >= 1
    body = answer.json()
    assert "--max-wait" in (body["error"] if path == "/embed" else body["error"]["message"])
    facts = body if path == "/embed" else body["error"]
    assert facts["limit"] == 0.5 < facts["seen"]
    assert facts["setting"] == "--max-wait"
    assert answer.headers["x-request-id"]


def test_the_line_of_another_model_is_open(busy):
    body = {"model": VIRTUAL_RERANKER, "query": "q", "documents": ["a", "b"]}
    assert httpx.post(f"{busy.url}/v2/rerank", json=body, timeout=30).status_code == 200


def test_batch_requests_wait_as_long_as_it_takes(busy):
    for _ in range(3):
        assert ask(busy, "/v1/embeddings", **{"x-shoal-priority": "batch"}).status_code == 200


def test_whoever_could_not_be_answered_in_his_time_is_told_so_at_once(busy):
    hurry = {"x-shoal-priority": "batch", "x-shoal-timeout-ms": "200"}
    answer = refusal(busy, "/v1/embeddings", **hurry)
    assert (answer.status_code, answer.headers["x-sie-error-code"]) == (503, "QUEUE_FULL")
    assert "X-Shoal-Timeout-Ms" in answer.text


def test_what_is_wrong_with_a_request_is_said_all_the_same(busy):
    assert httpx.post(f"{busy.url}/v1/embeddings", json={"model": "no/such", "input": "x"}).status_code == 404
    assert httpx.post(f"{busy.url}/v1/embeddings", content=b"{", headers=ANYBODY).status_code == 400
    assert refusal(busy, "/v1/embeddings", **{"x-shoal-priority": "urgent"}).status_code == 400


def test_a_refusal_is_the_same_however_the_request_comes_and_the_connection_goes_on(busy):
    """Whole, in two pieces, byte by byte, larger than what is looked at early, in chunks, and two at once."""
    request = requests(busy, ["a text"])[0]
    head, _, body = request.partition(b"\r\n\r\n")
    large = requests(busy, ["word " * 40_000])[0]
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
    chunked = b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b"%x" % len(body), body, b"0", b"", b""])
    bytewise = [request[at : at + 1] for at in range(len(request))]
    with socket.create_connection(("127.0.0.1", busy.port), timeout=30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pieces in ([request], [head + b"\r\n\r\n", body], bytewise, [large], [chunked], [request * 2]):
            refused = 0
            for turn in range(
                200
            ):  # one may come just when there is room, and the next as well if it comes at once
                if refused:
                    break
                time.sleep(0.01 * (turn % 30))
                for piece in pieces:
                    sock.sendall(piece)
                for _ in range(2 if pieces == [request * 2] else 1):
                    status, headers, content = read_answer(sock)
                    assert status in (200, 503)
                    refused += status == 503
                    if status == 503:
                        assert headers["x-sie-error-code"] == "QUEUE_FULL"
                        assert json.loads(content)["error"]["code"] == "QUEUE_FULL"
            assert refused, "nobody is refused"
        sock.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert read_answer(sock)[2] == b"ok"


def read_answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, "closed before the answer was whole"
        head += byte
    status, *lines = head.decode().strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body, size = b"", int(headers["content-length"])
    while len(body) < size:
        body += sock.recv(size - len(body))
    return int(status.split()[1]), headers, body


def test_a_key_is_asked_for_before_anything_is_said_of_the_load(virtual_home):
    key = {"authorization": "Bearer secret"}
    with serving(virtual_home, "--max-wait", "0.5", SHOAL_API_KEY="secret") as server:
        target = Target("127.0.0.1", server.port, tuple(key.items()))
        body = json.dumps(ASKED["/v1/embeddings"] | {"input": SLOW}).encode()
        flood = Flood(server.port, [Request("/v1/embeddings", body).encode(target)], 200)
        flood.run(rate=600, seconds=6)
        assert flood.run(rate=600, seconds=1).refused > 0
        assert refusal(server, "/v1/embeddings").status_code == 401
        flood.close()


def test_a_runtime_killed_under_overload_loses_nothing_accepted_and_answers_nothing_twice(virtual_home):
    texts = [f"shoal:virtual:slow=0.002 text {number}" for number in range(97)]
    with serving(virtual_home, "--max-wait", "0.5") as server:
        known = [vector(httpx.post(f"{server.url}/v1/embeddings", json=body_of(text)).content) for text in texts]
        wrong: list[int] = []

        def good(place: int, answer: bytes) -> None:
            if not np.array_equal(vector(answer.partition(b"\r\n\r\n")[2]), known[place]):
                wrong.append(place)

        answered = metric(server, "shoal_items_total")
        flood = Flood(server.port, requests(server, texts), 500, good)
        before = flood.run(rate=1500, seconds=4)
        during = flood.run(rate=1500, seconds=8, events=[(at, kill_runtime(server)) for at in (0.5, 3.5)])
        assert flood.finish() == 0, "everything is answered"
        after = metric(server, "shoal_items_total") - answered
        flood.close()
        assert metric(server, "shoal_runtime_deaths_total") == 2
    assert set(before.statuses) | set(during.statuses) <= {"200", "503"}, "answered or refused, and nothing lost"
    assert during.refused > 0
    assert during.without_retry_after == 0
    assert not wrong, "another's answer"
    assert after >= len(before.latencies) + len(during.latencies)


def kill_runtime(server):
    return lambda: [os.kill(pid, signal.SIGKILL) for pid in server.runtime_pids()]


def body_of(text: str) -> dict:
    return {"model": VIRTUAL, "input": text, "encoding_format": "base64"}


def vector(body: bytes) -> np.ndarray:
    return np.frombuffer(base64.b64decode(json.loads(body)["data"][0]["embedding"]), "f4")


def metric(server, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


def test_two_thousand_connections_at_once_are_answered_or_told_when_to_come_back(virtual_server):
    """And whoever only connects costs nothing but the connection."""
    asked = requests(virtual_server, [f"text {n}" for n in range(50)])
    with contextlib.ExitStack() as held:
        for _ in range(1000):
            held.enter_context(socket.create_connection(("127.0.0.1", virtual_server.port)))
        flood = held.enter_context(contextlib.closing(Flood(virtual_server.port, asked, 2000)))
        flooded = flood.run(rate=0, seconds=3, warm_up_s=1)
        assert flood.finish() == 0
        assert metric(virtual_server, "shoal_connections") >= 3000
    assert flooded.statuses.keys() <= {"200", "503"}
    assert flooded.statuses["200"] > 0
    assert flooded.without_retry_after == 0


def test_a_thousand_clients_that_do_not_read_keep_nobody_else_waiting(virtual_home):
    """Each is owed far more than its socket takes."""
    body = json.dumps({"model": VIRTUAL, "input": [f"t {n}" for n in range(60)]}).encode()
    with serving(virtual_home, "--max-wait", "60") as server, contextlib.ExitStack() as held:
        request = Request("/v1/embeddings", body).encode(Target("127.0.0.1", server.port))
        deaf = [held.enter_context(deaf_client(server, request)) for _ in range(1000)]
        answers = [
            httpx.post(f"{server.url}/v1/embeddings", json=body_of(f"a {n}"), timeout=60) for n in range(50)
        ]
        assert {answer.status_code for answer in answers} == {200}
        asyncio.run(until(lambda: metric(server, "shoal_requests_in_flight") == 0))
        assert metric(server, "shoal_connections") >= len(deaf)


def deaf_client(server, request: bytes) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", server.port))
    sock.sendall(request)
    return sock


async def until(holds, within_s=60.0) -> None:
    end = time.monotonic() + within_s
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.05)
