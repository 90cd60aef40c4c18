"""What a stranger may do with a connection, and what it costs us: raw sockets against a real server."""

import contextlib
import signal
import socket
import subprocess
import time

import httpx
import pytest

from names import VIRTUAL
from shoal.testing.server import serving

BODY = b'{"items":[{"text":"hello"}]}'


def post(body: bytes = BODY, *headers: str, version="1.1", length: int | None = None) -> bytes:
    lines = [f"POST /v1/encode/{VIRTUAL} HTTP/{version}", "host: x", "content-type: application/json", *headers]
    lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def connect(server) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    return sock


def read_answer(sock: socket.socket) -> str:
    """One whole answer, by its content length."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += received(sock)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += received(sock)
    return head.decode() + "\n\n" + body.decode("latin-1")


def received(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    assert data, "closed before the answer was whole"
    return data


def is_closed(sock: socket.socket) -> bool:
    """Whether the server ends the connection, within the socket's timeout."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_a_body_over_the_limit_is_refused_before_it_is_read_and_the_limit_is_named(virtual_home):
    with serving(virtual_home, "--max-body-bytes", "1000") as server:
        answer = httpx.post(f"{server.url}/v1/encode/{VIRTUAL}", content=b"x" * 2000)
        assert answer.status_code == 413
        assert "--max-body-bytes" in answer.text
        assert "1000" in answer.text


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_still_sending_its_body_can_read_why_it_was_refused(virtual_home, version):
    with serving(virtual_home, "--max-body-bytes", "1000") as server, connect(server) as sock:
        sock.sendall(post(b"x" * 1_000_000, "connection: close", version=version))
        answer = read_answer(sock)
        assert " 413 " in answer.splitlines()[0]
        assert "--max-body-bytes" in answer


def test_the_bodies_of_all_requests_together_are_bounded_and_the_setting_is_named(virtual_home):
    with serving(virtual_home, "--max-in-flight-bytes", "300000") as server, connect(server) as first:
        first.sendall(post(b"[" * 200_000, length=250_000))  # and then nothing for a while
        with connect(server) as second:
            second.sendall(post(b"[" * 200_000))
            answer = read_answer(second)
        assert " 503 " in answer.splitlines()[0]
        assert "--max-in-flight-bytes" in answer
        first.sendall(b"[" * 50_000)
        assert " 400 " in read_answer(first).splitlines()[0]
        with connect(server) as third:
            third.sendall(post())
            assert " 200 " in read_answer(third).splitlines()[0]


def test_a_client_that_does_not_send_its_body_is_let_go_naming_the_setting(virtual_home):
    with serving(virtual_home, "--body-timeout", "0.3") as server, connect(server) as sock:
        sock.sendall(post(b"{", length=50))
        answer = read_answer(sock)
        assert " 408 " in answer.splitlines()[0]
        assert "--body-timeout" in answer


def test_connections_over_the_limit_are_refused_naming_the_setting(virtual_home):
    with serving(virtual_home, "--max-connections", "3") as server:
        held = [connect(server) for _ in range(3)]
        with connect(server) as fourth:
            answer = read_answer(fourth)
        for sock in held:
            sock.close()
        assert answer.startswith("HTTP/1.1 503")
        assert "--max-connections" in answer


@pytest.mark.parametrize("before", [b"", post()], ids=["first", "second"])
def test_a_head_that_never_ends_is_let_go_also_on_a_connection_that_was_used(virtual_home, before):
    with serving(virtual_home, "--head-timeout", "0.5") as server, connect(server) as sock:
        if before:
            sock.sendall(before)
            assert " 200 " in read_answer(sock).splitlines()[0]
        sock.sendall(b"POST /v1/encode/x HTTP/1.1\r\nhost: x\r\nx-slow: ")
        assert is_closed(sock)


def test_a_head_over_the_limit_is_refused_naming_the_setting(virtual_home):
    with serving(virtual_home, "--max-head-bytes", "2000") as server, connect(server) as sock:
        sock.sendall(b"GET /livez HTTP/1.1\r\n")
        sock.sendall(b"x-many: " + b"y" * 300_000)
        answer = read_answer(sock)
        assert " 431 " in answer.splitlines()[0]
        assert "--max-head-bytes" in answer


def test_an_offer_to_upgrade_to_http2_is_ignored(virtual_server):
    with connect(virtual_server) as sock:
        sock.sendall(post(BODY, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"))
        assert " 200 " in read_answer(sock).splitlines()[0]


def test_a_client_that_never_reads_its_answer_does_not_keep_the_server_from_ending(virtual_home):
    with serving(virtual_home, "--write-timeout", "0.5") as server, connect(server) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(post(b'{"items":[' + b",".join([b'{"text":"t"}'] * 5000) + b"]}"))
        httpx.post(f"{server.url}/v1/encode/{VIRTUAL}", content=BODY, headers={"content-type": "application/json"})
        server.process.send_signal(signal.SIGTERM)
        try:
            assert server.process.wait(30) == 0
        except subprocess.TimeoutExpired:
            pytest.fail("it did not end")


def test_what_nobody_reads_is_bounded_and_whoever_reads_gets_his_answer(virtual_home):
    """Whoever reads nothing makes room."""
    body = b'{"items":[' + b",".join([b'{"text":"t"}'] * 3000) + b"]}"
    asked = post(body, "accept: application/json")
    bounds = ("--max-unread-bytes", "20000000", "--write-timeout", "600")
    with serving(virtual_home, *bounds) as server, contextlib.ExitStack() as held:
        deaf = [held.enter_context(connect(server)) for _ in range(5)]
        for sock in deaf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(asked)
        with connect(server) as sock:
            sock.sendall(asked)
            assert " 200 " in read_answer(sock).splitlines()[0]
        end = time.monotonic() + 20
        while open_connections(server) > len(deaf):  # theirs and the one that asks
            assert time.monotonic() < end, "nobody was let go"


def open_connections(server) -> float:
    page = httpx.get(f"{server.url}/metrics").text
    return float(next(line for line in page.splitlines() if line.startswith("shoal_connections ")).split()[1])
