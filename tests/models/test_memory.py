"""Memory over many batches of mixed lengths: no engine may grow to the largest batch, or with every new shape."""

import random
from pathlib import Path

import psutil
import pytest

from shoal.protocol.facts import Kind, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, open_runtime
from shoal.runtimes.memory import give_back

pytestmark = [pytest.mark.models, pytest.mark.slow]


def run_mixed(runtime: Runtime, batches: int, seed: int, kind: Kind = "dense") -> None:
    """Batches as the host cuts them: texts alike in length, at most 32 and 384 tokens, or one long one."""
    rng = random.Random(seed)
    for _ in range(batches):
        words = min(254, max(1, int(rng.lognormvariate(2.8, 1.0))))
        count = rng.randint(1, max(1, min(32, 384 // (words + 2))))
        lengths = [rng.randint(max(1, words * 4 // 5), words) for _ in range(count)]
        items = [Item(ids=rng.choices(range(1000, 30_000), k=length), kinds=(kind,)) for length in lengths]
        runtime.run(runtime.prepare(items), rng.randrange(runtime.profile.streams))


def anonymous_bytes() -> int:
    """What is mapped from files comes and goes as the system likes."""
    give_back()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is mapped from no file")
def test_kernels_of_all_shapes_are_kept_and_then_nothing_is_added(minilm):
    loaded = open_runtime(minilm.folder, minilm.facts, Profile(runtime="openvino", dtype="bf16"))
    run_mixed(loaded, 1500, seed=0)
    settled = anonymous_bytes()
    run_mixed(loaded, 2000, seed=1)
    assert anonymous_bytes() - settled < 5e6


@pytest.mark.parametrize(("runtime", "dtype"), [("openvino", "bf16"), ("onnx", "fp32")])
def test_memory_is_flat_over_thousands_of_mixed_batches(minilm, runtime, dtype):
    loaded = open_runtime(minilm.folder, minilm.facts, Profile(runtime=runtime, dtype=dtype))
    run_mixed(loaded, 500, seed=0)
    settled = psutil.Process().memory_info().rss
    run_mixed(loaded, 2000, seed=1)
    assert psutil.Process().memory_info().rss - settled < 32 * 1024**2


@pytest.mark.parametrize("runtime", ["openvino", "onnx"])
def test_memory_is_flat_where_every_token_has_a_number_for_every_word(splade, runtime):
    loaded = open_runtime(splade.folder, splade.facts, Profile(runtime=runtime))
    run_mixed(loaded, 100, seed=0, kind="sparse")
    settled = psutil.Process().memory_info().rss
    run_mixed(loaded, 400, seed=1, kind="sparse")
    assert psutil.Process().memory_info().rss - settled < 32 * 1024**2
