"""What this machine is, and which settings suit a model on it. No engine is imported to find out."""

import importlib.util
import os
from pathlib import Path

import msgspec

from shoal.catalog import Variant
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.runtimes.cpu import has_bf16


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of the machine, or of the control group if that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def default_profile(facts: Facts, tolerance: float | None, variant: Variant | None = None) -> Profile:
    """Settings for a model on this machine's processor, before anything is tuned. A variant has the dtype and
    the tolerance that it says.

    1. The virtual family runs on the virtual runtime.
    2. Published ONNX files run on ONNX Runtime, in the precision they have.
    3. Safetensors run on OpenVINO where it is installed, else on ONNX Runtime, vectors in bf16 where
       the processor has it, scores in fp32 (a logit in bf16 is good to about a hundredth only).
    """
    if variant is not None:
        plain = default_profile(facts, tolerance)
        return msgspec.structs.replace(plain, dtype=variant.dtype, tolerance=variant.tolerance)
    streams = max(1, min(cores(), 8))
    tolerance = tolerance or 0.9999
    if facts.family == "virtual":  # 1
        return Profile(runtime="virtual", streams=2, batch_items=512, batch_tokens=16_384, tolerance=1.0)
    if facts.files == "onnx":  # 2
        return Profile(runtime="onnx", streams=streams, tolerance=tolerance)
    if importlib.util.find_spec("openvino") is not None:  # 3
        bf16 = has_bf16() and "encode" in facts.tasks
        return Profile(runtime="openvino", streams=streams, dtype="bf16" if bf16 else "fp32", tolerance=tolerance)
    if importlib.util.find_spec("onnxruntime") is not None:
        return Profile(runtime="onnx", streams=streams, tolerance=tolerance)
    raise ModelLoadFailed("no engine is installed here; `pip install openvino` or `pip install onnxruntime`")
