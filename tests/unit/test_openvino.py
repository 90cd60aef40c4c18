"""What the OpenVINO runtime says of itself, and what it does not take."""

import pytest

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Profile
from shoal.runtimes import openvino
from shoal.testing.checkpoints import tiny_encoder
from shoal.testing.graphs import published_encoder


@pytest.mark.parametrize(
    ("asked", "has_bf16", "in_force"),
    [
        ("bf16", True, "bf16"),
        ("bf16", False, "fp32"),
        ("fp32", True, "fp32"),
        ("int8", True, "int8"),
        ("int8", False, "int8"),
    ],
)
def test_the_profile_in_force_says_the_precision_that_is_computed_in(
    tmp_path, monkeypatch, asked, has_bf16, in_force
):
    monkeypatch.setattr(openvino, "has_bf16", lambda: has_bf16)
    profile = Profile(runtime="openvino", dtype=asked, streams=1)
    assert openvino.open_runtime(tmp_path, tiny_encoder(tmp_path), profile).profile == Profile(
        runtime="openvino", dtype=in_force, streams=1
    )


def test_published_onnx_files_are_left_to_onnx_runtime(tmp_path):
    with pytest.raises(ModelLoadFailed, match=r"model\.safetensors"):
        openvino.open_runtime(tmp_path, published_encoder(tmp_path), Profile(runtime="openvino"))
