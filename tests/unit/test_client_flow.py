"""A request's life without I/O: the flow is driven by hand, on a clock that only moves when it sleeps."""

from typing import Any

import pytest

from shoal.client.flow import ConnectionFailed, Outcome, Received, Request, Send, Sleep, Terms, exchange
from shoal.client.retry import backoff_s, retry_after_s

OK = Received(200, {}, b"done")
REFUSED = ConnectionFailed("connect", "connection refused")
LOST = ConnectionFailed("lost", "server disconnected")
TIMEOUT = ConnectionFailed("timeout", "read timeout")
REQUEST = Request("POST", "/v1/encode/m", {"accept": "application/msgpack"}, b"body")


def answer(status: int, retry_after: str = "") -> Received:
    return Received(status, {"retry-after": retry_after} if retry_after else {}, b"")


class Drive:
    """Plays `outcomes` to a flow, the last one for ever; an attempt takes `attempt_s` on the clock."""

    def __init__(self, *outcomes: Outcome, attempt_s: float = 0.0, **terms: Any) -> None:
        self.clock = 1000.0
        self.sends: list[Send] = []
        self.sleeps: list[float] = []
        terms = {"timeout_s": 120.0, "wall": lambda: 0.0, "chance": lambda: 0.0} | terms
        flow = exchange(REQUEST, Terms(base_url="http://here", now=lambda: self.clock, **terms))
        outcome: Outcome | None = None
        script = list(outcomes)
        try:
            while True:
                action = flow.send(outcome)
                if isinstance(action, Sleep):
                    self.sleeps.append(action.seconds)
                    self.clock += action.seconds
                    outcome = None
                else:
                    self.sends.append(action)
                    self.clock += attempt_s
                    outcome = script.pop(0) if len(script) > 1 else script[0]
        except StopIteration as end:
            self.result: Outcome = end.value


def test_an_answer_ends_the_flow_after_one_attempt() -> None:
    drive = Drive(OK)
    assert (drive.result, len(drive.sends), drive.sleeps) == (OK, 1, [])


@pytest.mark.parametrize("status", [200, 302, 400, 401, 404, 408, 413, 422, 500, 501, 502])
def test_only_answers_that_may_change_are_asked_for_again(status: int) -> None:
    assert len(Drive(answer(status), OK).sends) == 1


@pytest.mark.parametrize("status", [429, 503, 504])
def test_a_busy_server_is_asked_again_when_it_said_so(status: int) -> None:
    drive = Drive(answer(status, "7"), OK)
    assert (drive.result, drive.sleeps) == (OK, [7.0])


def test_retry_after_may_be_a_date() -> None:
    drive = Drive(answer(503, "Thu, 01 Jan 1970 00:00:09 GMT"), OK)
    assert drive.sleeps == [9.0]


@pytest.mark.parametrize("value", ["", "0", "-3", "nan", "inf", "soon", "Thu, 01 Jan 1969 00:00:00 GMT", "1e999"])
def test_a_retry_after_that_says_nothing_of_use_leaves_the_backoff(value: str) -> None:
    assert retry_after_s({"retry-after": value}, wall=0.0, chance=0.5) is None
    assert Drive(answer(503, value), OK).sleeps == [backoff_s(1, 0.0)]


def test_clients_told_the_same_come_back_spread_and_never_early() -> None:
    waits = [retry_after_s({"retry-after": "10"}, 0.0, chance) for chance in (0.0, 0.5, 1.0)]
    assert waits == [10.0, 10.5, 11.0]


def test_the_backoff_doubles_up_to_a_limit_and_is_half_random() -> None:
    assert [backoff_s(attempt, 1.0) for attempt in (1, 2, 3, 6, 7, 2000)] == [0.25, 0.5, 1.0, 8.0, 8.0, 8.0]
    assert backoff_s(3, 0.0) == 0.5


def test_all_attempts_and_waits_together_stay_within_the_timeout() -> None:
    drive = Drive(answer(503), timeout_s=20.0, attempt_s=1.0)
    assert drive.clock - 1000.0 <= 20.0
    assert len(drive.sends) > 3
    assert drive.result == answer(503)


def test_a_wait_longer_than_what_is_left_is_not_begun() -> None:
    drive = Drive(answer(503, "60"), timeout_s=30.0)
    assert (len(drive.sends), drive.sleeps, drive.result.status) == (1, [], 503)


def test_each_attempt_is_bounded_by_what_is_left_and_tells_the_server_a_little_less() -> None:
    drive = Drive(answer(503, "30"), OK, timeout_s=100.0, attempt_s=10.0)
    assert [send.timeout_s for send in drive.sends] == [100.0, 60.0]
    assert [send.request.headers["x-shoal-timeout-ms"] for send in drive.sends] == ["99500", "59500"]
    assert drive.sends[1].request.headers["accept"] == "application/msgpack"
    assert drive.sends[1].request.body == b"body"


def test_a_refused_connection_is_tried_again_while_a_server_may_be_restarting() -> None:
    drive = Drive(REFUSED, REFUSED, REFUSED, OK)
    assert (drive.result, len(drive.sends)) == (OK, 4)


def test_a_server_that_stays_away_is_given_up_long_before_the_timeout() -> None:
    drive = Drive(REFUSED, timeout_s=120.0, connect_retry_s=5.0)
    assert drive.result == REFUSED
    assert 2.0 < drive.clock - 1000.0 <= 5.0


def test_without_connect_retries_a_refused_connection_fails_at_once() -> None:
    assert Drive(REFUSED, OK, connect_retry_s=0.0).sleeps == []


def test_a_connection_lost_under_way_is_tried_once_more_but_not_twice() -> None:
    assert Drive(LOST, OK).result == OK
    drive = Drive(LOST, LOST, OK)
    assert (drive.result, len(drive.sends)) == (LOST, 2)


def test_an_attempt_that_ran_out_of_time_was_the_last() -> None:
    drive = Drive(TIMEOUT, OK)
    assert (drive.result, len(drive.sends)) == (TIMEOUT, 1)
