"""Half an hour of every length and several models, by the bench that also says how to look at it."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent.parent / "bench" / "soak.py"


@pytest.mark.slow
@pytest.mark.models
def test_memory_stays_where_it_is_over_half_an_hour_of_all_lengths_while_models_come_and_go(home, tmp_path):
    command = [sys.executable, str(BENCH), "--minutes", "30", "--plot", str(tmp_path / "soak.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
