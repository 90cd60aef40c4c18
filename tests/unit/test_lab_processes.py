"""What processes take, of real ones."""

import os
import subprocess
import sys

import pytest

from shoal.lab.processes import Processes
from shoal.protocol.errors import NotFound

BUSY = """
import subprocess, sys, time
held = b"x" * 30_000_000
if len(sys.argv) > 1:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
while time.process_time() < 0.2:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family():
    """A process with a child; each has used a fifth of a second and holds 30 MB."""
    words = [sys.executable, "-c", BUSY, BUSY]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        yield parent
        parent.kill()  # the child's stdin ends with it


def test_a_process_and_its_children_are_counted_together(family):
    processes = Processes([family.pid])
    assert processes.cpu_s() >= 0.35
    memory = processes.memory()
    assert memory.processes == 2
    assert memory.rss_bytes > 60_000_000
    if sys.platform == "linux":
        assert 60_000_000 < memory.pss_bytes <= memory.rss_bytes


def test_a_process_named_twice_counts_once(family):
    once, twice = (Processes([family.pid] * times).memory().processes for times in (1, 2))
    assert once == twice


def test_what_has_ended_takes_nothing_and_is_no_error(family):
    processes = Processes([family.pid])
    family.kill()
    family.wait()
    assert processes.memory().processes == 0
    assert processes.cpu_s() == 0


def test_a_process_that_is_not_there_is_named():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(NotFound, match=str(child.pid)):
        Processes([os.getpid(), child.pid])
