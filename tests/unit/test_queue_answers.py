"""One answer from chunks that come late, twice, out of order or from two nodes."""

import itertools

import pytest

from shoal.protocol.envelope import Chunk
from shoal.protocol.errors import ResourceExhausted
from shoal.queue import answers
from shoal.queue.answers import Answer


def chunk(seq: int, last: bool = False, data: bytes = b"") -> Chunk:
    return Chunk("a", data or b"%d" % seq, seq, last)


async def taken(answer: Answer, count: int) -> list[bytes]:
    return [(await answer.next()).data for _ in range(count)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_chunks_in_any_order_come_out_in_theirs(order):
    answer = Answer()
    for seq in order:
        answer.put(chunk(seq, last=seq == 3), lease=1)
        answer.put(chunk(seq, last=seq == 3), lease=1)
    assert await taken(answer, 4) == [b"0", b"1", b"2", b"3"]
    assert answer.complete


async def test_chunks_of_two_leases_are_never_mixed():
    answer = Answer()
    answer.put(chunk(1, data=b"other 1"), lease=2)
    answer.put(chunk(0), lease=1)
    answer.put(chunk(0, data=b"other 0"), lease=2)
    answer.put(chunk(1, last=True), lease=1)
    assert await taken(answer, 2) == [b"0", b"1"]


async def test_what_came_before_a_failure_is_taken_first():
    answer = Answer()
    answer.put(chunk(0), lease=1)
    answer.fail(ResourceExhausted("broke off"))
    assert await taken(answer, 1) == [b"0"]
    with pytest.raises(ResourceExhausted):
        await answer.next()


async def test_a_complete_answer_cannot_fail_any_more():
    answer = Answer()
    answer.put(chunk(0, last=True), lease=1)
    answer.fail(ResourceExhausted("broke off"))
    assert await taken(answer, 1) == [b"0"]
    assert answer.failure is None


async def test_a_client_that_reads_too_slowly_loses_its_answer_not_our_memory(monkeypatch):
    monkeypatch.setattr(answers, "MOST_BYTES", 100)
    answer = Answer()
    for seq in range(5):
        answer.put(chunk(seq, data=b"x" * 40), lease=1)
    assert await taken(answer, 3) == [b"x" * 40] * 3
    with pytest.raises(ResourceExhausted, match="120 bytes, over the limit of 100 bytes"):
        await answer.next()


async def test_a_gap_that_does_not_close_fails_the_answer():
    answer = Answer()
    answer.put(chunk(0), lease=1)
    for seq in range(2, 3 + answers.MOST_AHEAD):
        answer.put(chunk(seq), lease=1)
    assert answer.failure is not None
