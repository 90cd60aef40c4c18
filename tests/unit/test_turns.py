"""Turns at the processor: no more at once than there are, served to whoever waits, and none lost to a death."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from shoal.cli._turns import SharedTurns
from shoal.node import devices
from shoal.runtimes.turns import Turns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")

TAKE_AND_DIE = """
import os, signal
from shoal.runtimes.turns import Turns
turns = Turns.inherited()
turns.take()
if {unsaid}: turns._set_owner(0, 0); turns._set_owner(1, 0)
os.kill(os.getpid(), signal.SIGKILL)
"""

TAKE_AND_KEEP = """
from shoal.runtimes.turns import Turns
Turns.inherited().take()
print("taken", flush=True)
input()
"""


@pytest.fixture
def turns():
    made = Turns.make(2, spare=False)
    yield made
    made.close()


def die_with_a_turn(turns, *, unsaid=False):
    """Another process takes one and is killed; `unsaid`: before it could write down that it has it."""
    subprocess.run(
        [sys.executable, "-c", TAKE_AND_DIE.format(unsaid=unsaid)],
        pass_fds=turns.fds, env=os.environ | turns.environment, check=False,
    )  # fmt: skip


def test_who_comes_when_all_turns_are_taken_waits_for_one_to_be_given(turns):
    one, other = turns.take(), turns.take()
    assert {one, other} == {0, 1}
    third: list[int] = []
    waiting = threading.Thread(target=lambda: third.append(turns.take()))
    waiting.start()
    waiting.join(0.05)
    assert third == []
    turns.give(one)
    waiting.join()
    assert third == [one]


def test_the_turn_of_a_process_that_died_comes_back(turns):
    die_with_a_turn(turns)
    turns.reclaim(lambda pid: False)
    assert {turns.take(), turns.take()} == {0, 1}


def test_a_turn_that_nobody_wrote_down_comes_back_when_it_is_missed_twice(turns):
    die_with_a_turn(turns, unsaid=True)
    turns.reclaim(lambda pid: False)
    assert len(turns._free_ones()) == 1
    turns._put_back(1)
    turns.reclaim(lambda pid: False)
    assert {turns.take(), turns.take()} == {0, 1}


def test_what_is_held_by_the_living_is_left_to_them(turns):
    mine = turns.take()
    turns.reclaim(os.getpid().__eq__)
    turns.reclaim(os.getpid().__eq__)
    (other,) = {0, 1} - {mine}
    assert turns._free_ones() == {other}
    turns.give(mine)
    assert turns._free_ones() == {mine}


def test_a_turn_given_out_twice_becomes_one_again(turns):
    mine = turns.take()
    os.write(turns._writer, bytes([mine]))
    other = turns.take()
    assert other != mine
    turns.give(mine)
    turns.give(mine)
    assert turns._free_ones() == {mine}


def test_the_spare_turn_comes_and_goes_as_the_node_says(turns):
    turns.want_spare(True)
    assert turns._free_ones() == {2, 0, 1}
    for turn in (0, 1, 2):
        turns._put_back(turn)
    turns.want_spare(False)
    taken = [turns.take() for _ in range(3)]
    turns.want_spare(True)  # before it was given back: it was never gone
    for turn in taken:
        turns.give(turn)
    assert turns._free_ones() == {0, 1, 2}


async def test_nodes_of_one_machine_go_on_without_the_turn_of_a_process_that_is_stopped():
    shared = SharedTurns(nodes=2)
    keeper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TAKE_AND_KEEP, pass_fds=shared.fds, env=os.environ | shared.environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert await keeper.stdout.readline() == b"taken\n"
        keeper.send_signal(signal.SIGSTOP)
        node = Turns(*shared.fds)
        async with asyncio.timeout(60):
            taken = [await asyncio.to_thread(node.take) for _ in range(devices.cores())]
        assert sorted(taken) == list(range(devices.cores()))
    finally:
        keeper.kill()
        await keeper.wait()
        shared.close()


async def test_a_node_that_is_alone_looks_after_its_own_turns():
    shared = SharedTurns(nodes=1)
    assert shared.fds == ()
    assert shared.environment == {}
    shared.close()
