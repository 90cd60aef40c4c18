"""Who may join the shared queue: user and password, token, TLS; and what is said to those who may not."""

import asyncio
import contextlib
import subprocess
from pathlib import Path

import msgspec
import pytest

from shoal.protocol.errors import InvalidInput, QueueUnavailable, ResourceExhausted
from shoal.queue import Limits
from shoal.queue.jetstream import JetStreamQueue
from shoal.queue.jetstream_auth import Login
from shoal.queue.server import ServerSettings, find_binary
from shoal.testing.nats import nats_server
from shoal.testing.server import free_port

HERE = Path()  # the server gets a folder of its own


async def joins(url: str, login: Login | None = None, within_s: float = 5.0) -> bool:
    queue = await JetStreamQueue.connect(
        url, limits=Limits(bytes_per_line=1 << 20), login=login, within_s=within_s
    )
    try:
        return await queue.depths() == {}
    finally:
        await queue.close()


async def test_user_and_password_from_the_url_or_beside_it():
    with nats_server(ServerSettings(folder=HERE, more='authorization { user: "u@x", password: "p" }')) as server:
        assert await joins(server.url.replace("://", "://u%40x:p@"))
        assert await joins(server.url, Login(user="u@x", password="p"))
        with pytest.raises(InvalidInput, match="refuses us"):
            await joins(server.url, Login(user="u@x", password="wrong"))
        with pytest.raises(InvalidInput, match="refuses us"):
            await joins(server.url)


async def test_a_token_from_the_url_or_beside_it():
    with nats_server(ServerSettings(folder=HERE, more='authorization { token: "secret" }')) as server:
        assert await joins(server.url.replace("://", "://secret@"))
        assert await joins(server.url, Login(token="secret"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key.pem",
         "-out", "cert.pem", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@contextlib.contextmanager
def tls_server(certificate, more=""):
    files = f'cert_file: "{certificate}/cert.pem", key_file: "{certificate}/key.pem"'
    with nats_server(ServerSettings(folder=HERE, more=f"tls {{ {files} {more} }}")) as server:
        yield server


async def test_tls_with_an_authority_of_ones_own(certificate):
    with tls_server(certificate) as server:
        assert await joins(server.url.replace("nats:", "tls:"), Login(tls_ca=certificate / "cert.pem"))


async def test_a_server_with_a_certificate_nobody_vouches_for_is_not_joined(certificate):
    with tls_server(certificate) as server, pytest.raises(InvalidInput, match="certificate of 127"):
        await joins(server.url.replace("nats:", "tls:"))


async def test_a_certificate_of_the_client(certificate):
    with tls_server(certificate, f', ca_file: "{certificate}/cert.pem", verify: true') as server:
        login = Login(
            tls_ca=certificate / "cert.pem", tls_cert=certificate / "cert.pem", tls_key=certificate / "key.pem"
        )
        assert await joins(server.url, login)


async def test_where_no_server_is_the_address_and_the_option_are_named():
    port = free_port()
    with pytest.raises(QueueUnavailable, match=rf"127.0.0.1:{port}; --nats changes it"):
        await joins(f"nats://127.0.0.1:{port}", within_s=0.3)


async def test_a_server_that_has_as_many_connections_as_it_may_is_quoted_with_the_setting_that_changes_it():
    with nats_server(ServerSettings(folder=HERE, more="max_connections: 1")) as server:
        first = await JetStreamQueue.connect(server.url, limits=Limits(bytes_per_line=1 << 20))
        try:
            with pytest.raises(QueueUnavailable, match="maximum connections exceeded; its max_connections"):
                await joins(server.url, within_s=1.0)
        finally:
            await first.close()
        assert await joins(server.url), "nobody is kept out once there is room"


async def test_what_is_no_queue_server_is_said_to_be_none():
    class Greeting(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    async with await asyncio.get_running_loop().create_server(Greeting, "127.0.0.1", 0) as other:
        with pytest.raises(QueueUnavailable, match=r"does not speak NATS: SSH-2\.0"):
            await joins(f"nats://127.0.0.1:{other.sockets[0].getsockname()[1]}", within_s=1.0)


async def test_a_server_that_may_not_keep_as_much_as_the_lines_may_hold_is_named_with_both_settings():
    with (
        nats_server(ServerSettings(folder=HERE, memory_bytes=1 << 19)) as server,
        pytest.raises(ResourceExhausted, match="--queue-bytes or its max_memory_store"),
    ):
        await joins(server.url)


def test_an_own_binary_may_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SHOAL_NATS_SERVER", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="no queue server at"):
        find_binary()
    assert find_binary(Path("/bin/sh")) == Path("/bin/sh")


async def test_who_is_not_taken_back_says_why_once_and_comes_back_when_he_is(caplog):
    def taking(password):
        return ServerSettings(folder=HERE, more=f'authorization {{ user: "u", password: "{password}" }}')

    def refusals():
        return [line for line in caplog.records if "does not take us back" in line.getMessage()]

    with nats_server(taking("p")) as server:
        queue = await JetStreamQueue.connect(server.url, login=Login(user="u", password="p"))
        try:
            kept = server.settings
            server.kill()
            server.settings = msgspec.structs.replace(kept, more=taking("other").more)
            server.start()
            async with asyncio.timeout(60):
                while not refusals():
                    await asyncio.sleep(0.05)
                await asyncio.sleep(2)  # several tries
                server.kill()
                server.settings = kept
                server.start()
                while not queue.is_up:
                    await asyncio.sleep(0.05)
            assert len(refusals()) == 1
        finally:
            await queue.close()
