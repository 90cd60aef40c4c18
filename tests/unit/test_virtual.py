"""The virtual accelerator: what it takes, what it makes up, and how it fails when asked to."""

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from shoal.catalog.virtual_device import VirtualDevice
from shoal.families import Prepared
from shoal.protocol.errors import EmptyInput, InternalError, ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes.virtual import VirtualRuntime, open_runtime

ENCODER = Facts(tasks=("encode",), family="virtual", files="none", max_tokens=16, dims=8)
SCORER = Facts(tasks=("score",), family="virtual", files="none", max_tokens=16, activation="sigmoid")


@pytest.fixture
def slept() -> list[float]:
    return []


def runtime(tmp_path, facts=ENCODER, device=VirtualDevice(0, 0), sleep=lambda seconds: None) -> VirtualRuntime:  # noqa: B008
    return VirtualRuntime(tmp_path, facts, Profile(runtime="virtual"), device, sleep)


def run(virtual: VirtualRuntime, *items: Item) -> list[dict[str, np.ndarray]]:
    prepared = [entry for entry in virtual.prepare(items) if isinstance(entry, Prepared)]
    assert len(prepared) == len(items)
    return virtual.run(prepared, 0).rows


def test_a_batch_takes_the_time_that_the_cost_model_says(tmp_path, slept):
    virtual = runtime(tmp_path, device=VirtualDevice(1.0, 0.1, 0.01), sleep=slept.append)
    run(virtual, Item("one two three"), Item("four"))  # with two markers each: 5 and 3 tokens
    assert slept == [pytest.approx(1.0 + 0.1 * 8 + 0.01 * (25 + 9))]


def test_a_padded_device_takes_the_longest_texts_time_for_every_text(tmp_path, slept):
    virtual = runtime(tmp_path, device=VirtualDevice(1.0, 0.1, 0.01, padded=True), sleep=slept.append)
    prepared = [
        entry for entry in virtual.prepare([Item("one two three"), Item("four")]) if isinstance(entry, Prepared)
    ]
    assert virtual.run(prepared, 0).tokens == 10
    assert slept == [pytest.approx(1.0 + 0.1 * 10 + 0.01 * 50)]


def test_dilation_stretches_every_time(tmp_path, slept):
    device = VirtualDevice(1.0, 0.1, dilation=20, stall_share=1.0, stall_seconds=0.5)
    run(runtime(tmp_path, device=device, sleep=slept.append), Item("four"))
    assert slept == [pytest.approx(20 * (1.0 + 0.1 * 3 + 0.5))]


def test_a_share_of_the_batches_stalls_and_always_the_same_ones(tmp_path, slept):
    virtual = runtime(tmp_path, device=VirtualDevice(0, 0, stall_share=0.1, stall_seconds=3.0), sleep=slept.append)
    for _ in range(2):
        for number in range(500):
            run(virtual, Item(f"text {number}"))
    assert set(slept) == {0.0, 3.0}
    assert 20 < slept[:500].count(3.0) < 100
    assert slept[:500] == slept[500:]


def test_a_serial_device_computes_one_batch_at_a_time_over_all_its_models(tmp_path):
    inside = threading.Lock()

    def sleep(seconds: float) -> None:
        assert inside.acquire(blocking=False)
        entered.set()
        gate.wait(5)
        inside.release()

    entered, gate = threading.Event(), threading.Event()
    models = [runtime(tmp_path, device=VirtualDevice(0, 0, serial=True), sleep=sleep) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(run, model, Item("fish")) for model in models for _ in range(2)]
        assert entered.wait(5)
        gate.set()
        assert all(finished.result(5) for finished in runs)


def test_a_devices_own_settings_are_in_force(tmp_path):
    device = VirtualDevice(0.003, 0.00001, padded=True, serial=True, batch_items=64, batch_tokens=8192)
    profile = runtime(tmp_path, device=device).profile
    assert (profile.streams, profile.slots, profile.batch_items, profile.batch_tokens) == (1, 2, 64, 8192)
    assert (profile.fixed_price, profile.padding_price) == (pytest.approx(300), 1.0)
    assert runtime(tmp_path).profile == Profile(runtime="virtual")


def test_the_cost_is_read_from_the_models_folder(tmp_path):
    (tmp_path / "virtual.json").write_text('{"seconds": 0.5, "seconds_per_token": 0.25}')
    opened = open_runtime(tmp_path, ENCODER, Profile(runtime="virtual"))
    assert opened._device == VirtualDevice(0.5, 0.25)


@pytest.mark.parametrize("content", ["{", '{"minutes": 1}', '{"seconds": "1"}'])
def test_a_malformed_cost_fails_the_load(tmp_path, content):
    (tmp_path / "virtual.json").write_text(content)
    with pytest.raises(ModelLoadFailed, match=r"virtual\.json"):
        open_runtime(tmp_path, ENCODER, Profile(runtime="virtual"))


def test_rows_are_unit_vectors_that_depend_on_the_input_alone(tmp_path):
    one, other, again = run(runtime(tmp_path), Item("fish"), Item("swim"), Item("fish"))
    (alone,) = run(runtime(tmp_path), Item("fish"))
    assert np.isclose(np.linalg.norm(one["dense"]), 1)
    assert one["dense"].shape == (8,)
    assert np.array_equal(one["dense"], again["dense"])
    assert np.array_equal(one["dense"], alone["dense"])
    assert not np.allclose(one["dense"], other["dense"])


def test_scores_are_activated_unless_raw(tmp_path):
    score, raw = run(runtime(tmp_path, SCORER), Item("a", pair="b"), Item("a", pair="b", raw=True))
    assert np.isclose(score["score"], 1 / (1 + np.exp(-raw["score"])))


def test_token_ids_are_served_too(tmp_path):
    (row,) = run(runtime(tmp_path), Item(ids=[101, 2_000_000]))
    assert row["dense"].shape == (8,)


def test_words_are_tokens_and_limits_hold(tmp_path):
    virtual = runtime(tmp_path)
    short, long, empty = virtual.prepare([Item("one, two"), Item("word " * 99), Item("")])
    assert (short.tokens, short.truncated) == (4, False)
    assert (long.tokens, long.truncated) == (16, True)
    assert isinstance(empty, EmptyInput)


def test_a_text_may_ask_for_an_error_or_for_memory_to_run_out(tmp_path):
    with pytest.raises(RuntimeError):
        run(runtime(tmp_path), Item("fish"), Item("shoal:virtual:raise"))
    with pytest.raises(MemoryError):
        run(runtime(tmp_path, SCORER), Item("fish", pair="shoal:virtual:oom"))


def test_a_text_may_ask_for_nan_in_its_own_row_only(tmp_path):
    fine, broken = run(runtime(tmp_path), Item("fish"), Item("shoal:virtual:nan"))
    assert np.isfinite(fine["dense"]).all()
    assert np.isnan(broken["dense"]).all()


def test_a_text_may_ask_for_a_slow_batch(tmp_path, slept):
    virtual = runtime(tmp_path, device=VirtualDevice(0, 0), sleep=slept.append)
    run(virtual, Item("fish"), Item("shoal:virtual:slow=2.5"))
    assert slept == [2.5]


def test_a_text_may_ask_for_the_process_to_be_killed(tmp_path):
    program = (
        "from pathlib import Path; from shoal.runtimes import open_runtime;"
        "from shoal.protocol.facts import Facts, Profile; from shoal.protocol.items import Item;"
        "facts = Facts(tasks=('encode',), family='virtual', files='none', max_tokens=16, dims=8);"
        f"runtime = open_runtime(Path({str(tmp_path)!r}), facts, Profile(runtime='virtual'));"
        "runtime.run(runtime.prepare([Item('shoal:virtual:die')]), 0)"
    )
    finished = subprocess.run([sys.executable, "-c", program], check=False)
    assert finished.returncode == -signal.SIGKILL


def test_with_an_adapter_the_numbers_are_others_and_without_it_there_are_none(tmp_path):
    virtual = runtime(tmp_path)
    (plain,) = run(virtual, Item("a text"))
    (read,) = virtual.prepare([Item("a text", adapter="one")])
    assert isinstance(read, InternalError)
    (tmp_path / "lora").mkdir()
    with pytest.raises(ModelLoadFailed):
        virtual.take_adapter("one", tmp_path / "lora")
    said = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["query"]}
    (tmp_path / "lora" / "adapter_config.json").write_text(json.dumps(said))
    for digest in ("one", "two"):
        virtual.take_adapter(digest, tmp_path / "lora")
    again, one, two = run(virtual, Item("a text"), Item("a text", adapter="one"), Item("a text", adapter="two"))
    assert np.array_equal(again["dense"], plain["dense"])
    assert not np.array_equal(one["dense"], plain["dense"])
    assert not np.array_equal(one["dense"], two["dense"])
    virtual.drop_adapter("one")
    assert isinstance(virtual.prepare([Item("a text", adapter="one")])[0], InternalError)
