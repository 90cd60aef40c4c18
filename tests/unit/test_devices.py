"""Which settings a model gets on which machine, before anything is tuned."""

import importlib.util

import pytest

from shoal.catalog import Variant
from shoal.node import devices
from shoal.node.devices import default_profile
from shoal.protocol.facts import Facts, Sparse


def facts(family: str = "bert", **more) -> Facts:
    return Facts(**{"tasks": ("encode",), "family": family, "files": "safetensors", "max_tokens": 512, **more})


@pytest.fixture
def with_gpu(monkeypatch) -> None:
    monkeypatch.setattr(devices, "accelerator", lambda: "cuda")


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch) -> None:
    monkeypatch.setattr(devices, "accelerator", lambda: "")


def test_a_family_that_is_built_in_runs_light():
    assert default_profile(facts(), None).runtime in ("openvino", "onnx")


@pytest.mark.parametrize("family", ["deberta-v2", "t5", "qwen2.5", "no.such.family"])
def test_a_family_that_is_not_built_in_runs_on_pytorch_in_fp32(family):
    profile = default_profile(facts(family), None)
    assert (profile.runtime, profile.device, profile.dtype) == ("pytorch", "cpu", "fp32")


@pytest.mark.parametrize(
    ("more", "dtype"),
    [
        ({}, "bf16"),
        ({"tasks": ("score",)}, "fp32"),
        ({"kinds": ("sparse",), "sparse": Sparse()}, "fp32"),
    ],
    ids=["dense", "score", "sparse"],
)
def test_where_pytorch_has_an_accelerator_it_is_used_and_what_is_ranked_by_small_steps_stays_exact(
    with_gpu, more, dtype
):
    profile = default_profile(facts(**more), None)
    assert (profile.runtime, profile.device, profile.dtype) == ("pytorch", "cuda", dtype)
    assert profile.tolerance == (0.999 if dtype == "bf16" else 0.9999)


def test_published_graphs_stay_on_onnx_runtime_beside_an_accelerator(with_gpu):
    assert default_profile(facts(files="onnx"), 0.99).runtime == "onnx"


def test_eight_bit_weights_are_for_the_processor_and_promise_what_was_measured(with_gpu):
    profile = default_profile(facts(), None, Variant(dtype="int8", tolerance=0.997))
    assert (profile.runtime, profile.dtype, profile.tolerance) == ("openvino", "int8", 0.997)


def test_another_variant_takes_the_accelerator(with_gpu):
    profile = default_profile(facts(), None, Variant(dtype="fp32", tolerance=0.9999))
    assert (profile.runtime, profile.device, profile.dtype) == ("pytorch", "cuda", "fp32")


def test_an_accelerator_counts_only_with_a_pytorch_that_was_built_for_it(monkeypatch, tmp_path):
    """Without the fixtures' stand-in: a PyTorch for processors, then one for CUDA, then its driver."""
    monkeypatch.undo()
    (tmp_path / "lib").mkdir()
    origin = tmp_path / "__init__.py"
    found = importlib.util.spec_from_file_location("torch", origin)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr(devices.sys, "platform", "linux")
    driver = tmp_path / "nvidiactl"
    monkeypatch.setattr(devices, "_DRIVERS", {"libtorch_cuda.so": driver})
    assert devices.accelerator() == ""
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    assert devices.accelerator() == ""
    driver.touch()
    assert devices.accelerator() == "cuda"
