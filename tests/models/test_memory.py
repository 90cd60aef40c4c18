"""Memory over many batches of mixed lengths: no engine may grow to the largest batch, or with every new shape."""

import random

import psutil
import pytest

from shoal.protocol.facts import Kind, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, open_runtime

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
