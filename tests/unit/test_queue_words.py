"""What the shared queue's traffic is made of: subjects, frames, addresses, and the bytes of the NATS protocol."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol import subjects
from shoal.protocol.envelope import Chunk, Envelope, Job
from shoal.protocol.errors import InvalidInput
from shoal.queue import jetstream_frames as frames
from shoal.queue.jetstream_auth import Address, Login, addresses, connect_line
from shoal.queue.jetstream_wire import Wire

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES)
def test_any_name_becomes_one_part_of_a_subject_and_comes_back(name):
    token = subjects.token(name)
    assert not set(token) & set(" .*>/\\\t\r\n")
    assert subjects.name_of(token) == name
    subject = subjects.work("pool", "batch", name, "short")
    assert (subjects.line_of(subject), subjects.priority_of(subject)) == (name, "batch")


@given(NAMES)
def test_names_of_consumers_fit_the_server(name):
    assert len(subjects.consumer("interactive", name)) <= 255


def test_frames_come_back_as_they_were():
    envelope = Envelope(
        id="a",
        task="encode",
        model="m:int8",
        line="m",
        dialect="native",
        route="encode",
        deadline=2.5,
        received=1.5,
    )
    job = Job(envelope, b"\r\n\x00body")
    assert frames.decode_job(frames.encode_job(job, "answer.x")) == (job, "answer.x")
    chunk = Chunk("a", b"data", seq=3, last=False, status=201, headers=(("x", "y"),))
    assert frames.decode_chunk(frames.encode_chunk(chunk, 1 << 60)) == (chunk, 1 << 60)
    assert frames.decode_held(frames.encode_held("node.x", ["a", "b"])) == frames.Held("node.x", ["a", "b"])
    assert frames.decode_cancel(frames.encode_cancel(["a"])) == ["a"]


@pytest.mark.parametrize("frame", [b"", b"\x01", b"{}", b"\x02\x00\x00\x00\x00"])
def test_what_is_no_job_is_said_to_be_none(frame):
    with pytest.raises(ValueError, match="not a job"):
        frames.decode_job(frame)


def test_addresses_name_host_port_login_and_tls():
    assert addresses("tls://u%40x:p@a:1, b") == [Address("a", 1, "u@x", "p", True), Address("b", 4222)]
    with pytest.raises(InvalidInput, match="nats://host:4222"):
        addresses("http://a")


def test_a_token_in_the_url_is_a_token_and_credentials_must_be_readable(tmp_path):
    assert b'"auth_token":"secret"' in connect_line(Login(), Address("a", 1, "secret"), "", "x")
    (tmp_path / "creds").write_text("nothing")
    with pytest.raises(InvalidInput, match="no credentials file"):
        connect_line(Login(creds=tmp_path / "creds"), Address("a", 1), "", "x")


STREAM = (
    b'INFO {"max_payload":100}\r\nPING\r\n+OK\r\nMSG a.b 7 3\r\nx\r\n\r\n'
    b"MSG a.b 7 re.ply 0\r\n\r\nHMSG c 8 12 15\r\nNATS/1.0\r\n\r\nabc\r\n-ERR 'Permissions Violation for x'\r\n"
)


@given(st.lists(st.integers(1, len(STREAM)), max_size=12))
def test_messages_are_whole_however_the_bytes_are_cut(cuts):
    async def read() -> list[tuple[object, ...]]:
        heard: list[tuple[object, ...]] = []
        wire = Wire(lambda *message: heard.append(message))
        edges = sorted({0, *cuts, len(STREAM)})
        for start, stop in itertools.pairwise(edges):
            wire.data_received(STREAM[start:stop])
        assert (await wire.info).max_payload == 100
        assert not wire.lost.done()
        return heard

    assert asyncio.run(read()) == [
        (7, b"a.b", b"", b"", b"x\r\n"),
        (7, b"a.b", b"re.ply", b"", b""),
        (8, b"c", b"", b"NATS/1.0\r\n\r\n", b"abc"),
    ]


async def test_what_does_not_speak_nats_is_hung_up_on():
    wire = Wire(lambda *message: None)
    wire.data_received(b"HTTP/1.1 400 Bad Request\r\n")
    assert "does not speak NATS" in await wire.lost
