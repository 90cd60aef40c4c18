"""Folders of adapters that lie, at random: whatever they say, the answer is a refusal that can be told."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.families.lora import WEIGHTS, read_adapter
from shoal.families.weights import read_tensors
from shoal.protocol.errors import ModelLoadFailed
from shoal.testing.adapters import linears, write_adapter
from shoal.testing.checkpoints import tiny_encoder

KEY = "base_model.model.encoder.layer.0.attention.self.query.lora_"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=6,
)
SAID = st.sampled_from(
    ["peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "bias",
     "base_model_name_or_path", "init_lora_weights", "modules_to_save", "use_dora", "fan_in_fan_out", "new"]
)  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> tuple[Path, dict[str, tuple[int, int]]]:
    """An adapter's folder that several examples change, and its base's sites."""
    folder = tmp_path_factory.mktemp("lies")
    tiny_encoder(folder / "base")
    return write_adapter(folder / "a", folder / "base"), dict(linears(folder / "base"))


@settings(max_examples=300, deadline=None)
@given(lies=st.dictionaries(SAID, JSON, max_size=3))
def test_no_config_raises_anything_but_a_refusal(kept, lies):
    folder, sites = kept
    said = config_of(folder)
    (folder / "adapter_config.json").write_text(json.dumps(said | lies))
    try:
        assert read_adapter(folder, sites)
    except ModelLoadFailed as refused:
        refused.message.encode()  # can be told
    finally:
        (folder / "adapter_config.json").write_text(json.dumps(said))


def config_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "adapter_config.json").read_text())


HUGE = st.integers(-(2**70), 2**70)
NAME = st.sampled_from([f"{KEY}A.weight", f"{KEY}B.weight"]) | st.text()
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "F64", "F8_E4M3", ""]) | JSON,
        "shape": st.lists(HUGE | st.integers(0, 40), max_size=3) | JSON,
        "data_offsets": st.lists(HUGE | st.integers(0, 600), min_size=2, max_size=2) | JSON,
    }
)


@settings(max_examples=300, deadline=None)
@given(
    header=st.dictionaries(st.sampled_from([f"{KEY}A.weight", f"{KEY}B.weight"]) | st.text(), ENTRY, max_size=3)
)
def test_no_safetensors_header_raises_anything_but_a_refusal(kept, header):
    folder, sites = kept
    honest = (folder / WEIGHTS).read_bytes()
    told = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(told).to_bytes(8, "little") + told + bytes(512))
    try:
        read_adapter(folder, sites)
    except ModelLoadFailed as refused:
        refused.message.encode()
    finally:
        (folder / WEIGHTS).write_bytes(honest)


def test_a_header_that_is_nested_too_deeply_is_refused(tmp_path):
    told = b'{"a":' + b"[" * 100_000
    (tmp_path / WEIGHTS).write_bytes(len(told).to_bytes(8, "little") + told)
    with pytest.raises(ModelLoadFailed, match="cannot read"):
        list(read_tensors(tmp_path / WEIGHTS, ["F32"], 10**6))


def test_a_header_over_the_limit_is_not_read(tmp_path):
    told = b'{"a":' + b" " * 2000 + b"1}"
    (tmp_path / WEIGHTS).write_bytes(len(told).to_bytes(8, "little") + told)
    with pytest.raises(ModelLoadFailed, match="or than 1000 bytes"):
        list(read_tensors(tmp_path / WEIGHTS, ["F32"], 1000))
