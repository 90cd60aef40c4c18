"""The load generator against servers that behave and servers that do not."""

import asyncio
import itertools

import pytest
from raw_server import OK, speaking

from shoal.lab.bench import Plan
from shoal.lab.bench import run as bench
from shoal.lab.load import Request, Target, closed, open_loop
from shoal.lab.open_loop import arrivals
from shoal.lab.probe import target_of
from shoal.lab.ramp import parse_loads
from shoal.lab.wires import Wire
from shoal.testing.server import free_port

REQUESTS = [Request("/x", b"one", tokens=3), Request("/x", b"three", items=3, tokens=9)]
SHORT = {"seconds": 0.4, "warm_up_s": 0.05}


async def well(talk):
    talk.say(OK)


def test_answers_are_counted_with_what_their_requests_are_worth():
    with speaking(well) as target:
        run = closed(target, REQUESTS, 4, **SHORT)
    assert run.errors == {}
    assert run.reopened == 0
    assert {(a.status, a.items, a.tokens) for a in run.done} == {(200, 1, 3), (200, 3, 9)}
    assert run.items_per_second == pytest.approx(sum(a.items for a in run.done) / 0.4)
    assert run.tokens_per_second == pytest.approx(3 * run.items_per_second)
    assert 0 < run.percentile(0.5) <= run.percentile(0.99)


def test_a_refusal_is_counted_by_its_status_and_is_no_throughput():
    async def every_other(talk):
        refusal = b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 4\r\n\r\nfull"
        talk.say(OK if talk.number % 2 else refusal)

    with speaking(every_other) as target:
        run = closed(target, REQUESTS[:1], 1, **SHORT)
    assert set(run.errors) == {"503"}
    assert run.complaint == "full"
    assert all(a.status == 200 for a in run.done)
    assert abs(run.errors["503"] - len(run.done)) <= 2


def test_a_refused_connection_waits_as_long_as_it_is_told_to():
    async def refuse(talk):
        talk.say(b"HTTP/1.1 429 Slow\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n")

    with speaking(refuse) as target:
        run = closed(target, REQUESTS, 3, seconds=0.3, warm_up_s=0)
    assert run.errors == {"429": 3}
    assert {a.retry_after_s for a in run.answers} == {60.0}
    assert 0 < run.rested_s <= 3 * 0.3


def test_a_connection_that_breaks_is_counted_and_opened_again():
    async def break_some(talk):
        talk.hang_up() if talk.number % 5 == 0 else talk.say(OK)

    with speaking(break_some) as target:
        loops = [closed(target, REQUESTS, 2, **SHORT), open_loop(target, REQUESTS, 200, **SHORT)]
    for run in loops:
        assert set(run.errors) == {"connection lost"}
        assert run.reopened >= run.errors["connection lost"]
        assert len(run.done) > run.errors["connection lost"]


def test_a_server_that_closes_after_each_answer_loses_nothing():
    async def once(talk):
        talk.say(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end")
        talk._writer.close()

    with speaking(once) as target:
        for run in (closed(target, REQUESTS, 2, **SHORT), open_loop(target, REQUESTS, 100, **SHORT)):
            assert run.errors == {}
            assert len(run.done) > 1


def test_bytes_that_are_no_answer_are_an_error_with_a_name():
    async def gibber(talk):
        talk.say(b"SSH-2.0-nothing\r\n\r\n")

    with speaking(gibber) as target:
        run = closed(target, REQUESTS, 1, **SHORT)
    assert [kind for kind in run.errors if not kind.startswith("broken answer")] == []
    assert run.errors
    assert run.per_second == 0


def test_an_open_loop_does_not_wait_for_answers():
    """The server says nothing until so many requests have come as no closed loop on it could have sent."""
    held = []

    async def hold(talk):
        held.append(talk)
        if len(held) >= 20:
            for one in held:
                one.say(OK)
            held.clear()

    with speaking(hold) as target:
        run = open_loop(target, REQUESTS, 400, seconds=0.4, warm_up_s=0, connections=64, patience_s=2)
    assert len(run.done) >= 20
    assert set(run.errors) <= {"unanswered"}


@pytest.mark.parametrize("connections", [1, 64])
def test_latency_counts_from_when_a_request_was_due_also_where_it_waits_for_a_connection(connections):
    with speaking(well) as target:
        run = open_loop(target, REQUESTS, 300, seconds=0.4, warm_up_s=0.1, seed=7, connections=connections)
    due = list(itertools.takewhile(lambda at: at < 0.5, arrivals(300, 7, even=False)))
    began = sorted(answer.began_s + 0.1 for answer in run.answers if answer.began_s >= 0)
    assert began == pytest.approx([at for at in due if at >= 0.1], abs=1e-6)


def test_what_is_never_answered_is_an_error_that_counts_among_the_latencies():
    async def silence(talk):
        pass

    with speaking(silence) as target:
        runs = [
            closed(target, REQUESTS, 3, seconds=0.2, warm_up_s=0, patience_s=0.1),
            open_loop(target, REQUESTS, 50, seconds=0.2, warm_up_s=0, patience_s=0.1),
        ]
    assert runs[0].errors == {"unanswered": 3}
    assert runs[1].errors["unanswered"] > 0
    for run in runs:
        assert len(run.latencies) == run.errors["unanswered"]
        assert run.per_second == 0


def test_where_nothing_listens_a_load_says_so_at_once():
    nobody = Target("127.0.0.1", free_port())
    with pytest.raises(OSError, match="refused"):
        closed(nobody, REQUESTS, 1, **SHORT)
    with pytest.raises(OSError, match="refused"):
        open_loop(nobody, REQUESTS, 10, **SHORT)


async def stream(talk):
    """A chat of five tokens, of which two events hold text."""
    talk.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for event in (
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"Go"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"od"}}]}\n\n',
        b'data: {"choices":[],"usage":{"completion_tokens":5}}\n\n',
        b"data: [DONE]\n\n",
    ):
        talk.say(b"%x\r\n%b\r\n" % (len(event), event))
        await asyncio.sleep(0)
    talk.say(b"0\r\n\r\n")


def test_a_stream_tells_its_first_token_and_how_many_it_made():
    with speaking(stream) as target:
        run = closed(target, REQUESTS, 2, **SHORT)
    assert run.errors == {}
    assert {a.made for a in run.done} == {5}
    assert all(0 < a.first_s <= a.latency_s for a in run.done)
    assert run.made_per_second == pytest.approx(5 * run.per_second)


def test_a_bench_of_chat_reports_first_tokens_and_tokens_made():
    with speaking(stream) as target:
        loads = parse_loads("2", "connections")
        plan = Plan(f"http://127.0.0.1:{target.port}", Wire("chat", "m"), loads, **SHORT)
        (level,) = bench(plan).levels
    assert level.errors == {}
    assert level.made_per_second == pytest.approx(5 * level.per_second)
    assert 0 < level.first_p50_ms <= level.p50_ms


def test_processor_time_is_asked_for_at_both_ends_of_the_window():
    asked = []

    def watch():
        asked.append(len(asked))
        return float(asked[-1])

    with speaking(well) as target:
        run = closed(target, REQUESTS, 1, **SHORT, watch=watch)
    assert len(asked) == 2
    assert run.cpu_s == 1.0
    assert run.own_cpu_s > 0


def test_a_url_says_whom_to_ask_with_which_key_and_below_which_path():
    target, prefix = target_of("https://host/api/v1/", "secret")
    assert (target.host, target.port, target.tls, prefix) == ("host", 443, True, "/api")
    assert target.headers == (("authorization", "Bearer secret"),)
    assert target_of("127.0.0.1:8080", None) == (Target("127.0.0.1", 8080), "")


def test_a_request_names_its_host_and_its_length():
    target, _ = target_of("http://[::1]:80", "k")
    head, body = Request("/x", b"two", headers=(("accept", "*/*"),)).encode(target).split(b"\r\n\r\n")
    assert body == b"two"
    assert head.split(b"\r\n") == [
        b"POST /x HTTP/1.1",
        b"host: [::1]:80",
        b"content-type: application/json",
        b"content-length: 3",
        b"authorization: Bearer k",
        b"accept: */*",
    ]


def test_arrivals_are_the_same_for_the_same_seed_and_as_many_as_the_rate_says():
    one, other = (list(itertools.islice(arrivals(50, seed, even=False), 5000)) for seed in (1, 1))
    assert one == other
    assert one != list(itertools.islice(arrivals(50, 2, even=False), 5000))
    assert 5000 / one[-1] == pytest.approx(50, rel=0.05)
    assert list(itertools.islice(arrivals(4, 1, even=True), 3)) == [0.25, 0.5, 0.75]
