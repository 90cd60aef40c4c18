"""What this machine is, and which settings suit a model on it. No engine is imported to find out."""

import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from shoal.catalog import Model, Variant
from shoal.catalog.profiles import Profiles, device_kind
from shoal.catalog.variants import variants_of
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.runtimes.cpu import cpu_flags, has_bf16

_DRIVERS = {"libtorch_cuda.so": Path("/dev/nvidiactl"), "libtorch_hip.so": Path("/dev/kfd")}
"""What a PyTorch for GPUs brings, and what the driver it needs puts on the system. AMD's is called cuda too."""


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


def accelerator() -> str:
    """The kind of device, other than processors, that an installed PyTorch can use: "cuda", "mps" or "" for none.

    Told by the driver's files and by the libraries that PyTorch brings, so a build for processors counts as none.
    """
    found = importlib.util.find_spec("torch") if has_pytorch() else None
    if found is None or found.origin is None:
        return ""
    if sys.platform == "darwin":
        return "mps" if platform.machine() == "arm64" else ""
    libraries = Path(found.origin).parent / "lib"
    usable = any((libraries / name).exists() and driver.exists() for name, driver in _DRIVERS.items())
    return "cuda" if usable else ""


def kind() -> str:
    """Which kind of device this machine's processor is, as profiles are kept by."""
    return device_kind(platform.machine(), cpu_flags(), cores())


def profile_for(model: Model, profiles: Profiles) -> Profile:
    """What was settled for the model by measuring it, else the rule. A variant is what it says it is. Raises
    ModelLoadFailed where no engine is installed.
    """
    variant = variants_of(model.card, model.facts).get(model.variant)
    rule = default_profile(model.facts, model.card.tolerance, variant)
    kept = None if model.variant else profiles.of(model)
    return kept.applied(rule) if kept else rule


def default_profile(facts: Facts, tolerance: float | None, variant: Variant | None = None) -> Profile:
    """Settings for a model on this machine, before anything is tuned. A variant has the dtype and the tolerance
    that it says.

    1. The virtual family runs on the virtual runtime.
    2. Published ONNX files run on ONNX Runtime, in the precision they have.
    3. Safetensors of a family that is not built in run on PyTorch, which says at load if it is missing. So do
       those of any other where PyTorch has an accelerator to use; 8-bit weights are for processors.
    4. Other safetensors run on OpenVINO where it is installed, else on ONNX Runtime: dense vectors in bf16 where
       the processor has it, everything else in fp32 (a logit in bf16 is good to about a hundredth only).
    """
    if variant is not None:
        plain = _plain_profile(facts, tolerance, "" if variant.dtype == "int8" else accelerator())
        return msgspec.structs.replace(plain, dtype=variant.dtype, tolerance=variant.tolerance)
    return _plain_profile(facts, tolerance, accelerator())


def _plain_profile(facts: Facts, tolerance: float | None, device: str) -> Profile:
    streams = max(1, min(cores(), 8))
    tolerance = tolerance or 0.9999
    if facts.family == "virtual":  # 1
        return Profile(runtime="virtual", streams=2, batch_items=512, batch_tokens=16_384, tolerance=1.0)
    if facts.files == "onnx":  # 2
        return Profile(runtime="onnx", streams=streams, tolerance=tolerance)
    if device or not _is_built_in(facts.family):  # 3
        return _on_pytorch(facts, tolerance, device, streams)
    if importlib.util.find_spec("openvino") is not None:  # 4
        dtype: Literal["bf16", "fp32"] = "bf16" if has_bf16() and _is_dense(facts) else "fp32"
        return Profile(runtime="openvino", streams=streams, ahead=1, lone=True, dtype=dtype, tolerance=tolerance)
    if importlib.util.find_spec("onnxruntime") is not None:
        return Profile(runtime="onnx", streams=streams, tolerance=tolerance)
    raise ModelLoadFailed("no engine is installed here; `pip install openvino` or `pip install onnxruntime`")


def _on_pytorch(facts: Facts, tolerance: float, device: str, streams: int) -> Profile:
    """On an accelerator one stream of large batches keeps it busy, and norms too are computed in bf16."""
    if not device:
        return Profile(runtime="pytorch", streams=streams, tolerance=tolerance)
    dtype: Literal["bf16", "fp32"] = "bf16" if _is_dense(facts) else "fp32"
    # A sparse vector needs a number for each word of the vocabulary at every token.
    batch_tokens = 2_048 if "sparse" in facts.kinds else 16_384
    return Profile(
        runtime="pytorch", device=device, dtype=dtype, streams=1, threads=cores(), batch_items=256,
        batch_tokens=batch_tokens, tolerance=min(tolerance, 0.999) if dtype == "bf16" else tolerance,
    )  # fmt: skip


def usual() -> str:
    """The devices of a node that is told nothing: every CUDA device where PyTorch can use them, else one."""
    return accelerator() if accelerator() == "cuda" else "cpu"


def named(given: str) -> tuple[str, ...]:
    """The devices of a node by their kind and number: "cpu", "cpu:2" (so many replicas of a model share the
    processor), "cuda" (all there are), "cuda:2", "virtual:4". Raises InvalidInput.
    """
    kind, _, number = given.partition(":")
    if kind not in ("cpu", "cuda", "mps", "virtual") or (number and not (number.isdigit() and int(number))):
        raise InvalidInput(f"devices are cpu, cuda or virtual, with a number as in virtual:4, not {given!r}")
    count = int(number) if number else (_cuda_devices() if kind == "cuda" else 1)
    return (kind,) if count == 1 else tuple(f"{kind}:{index}" for index in range(count))


def on_device(profile: Profile, device: str, among: Sequence[str]) -> Profile:
    """`profile` as it is for one of a node's devices: its name where the runtime must know it, and of a processor
    that several share, the share."""
    kind = device.partition(":")[0]
    if (kind == "cuda" and profile.device == kind) or (kind == "virtual" and profile.runtime == kind):
        return msgspec.structs.replace(profile, device=device)
    if kind == "cpu" and profile.device == kind and profile.runtime != "virtual" and len(among) > 1:
        return msgspec.structs.replace(profile, streams=max(1, profile.streams // len(among)))
    return profile


def _cuda_devices() -> int:
    """As the driver's files tell; AMD's are not numbered so, and count as one."""
    return max(1, sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia[0-9]*")))


def has_pytorch() -> bool:
    """Whether the extra `shoal[pytorch]` is installed."""
    return importlib.util.find_spec("sentence_transformers") is not None


def _is_built_in(family: str) -> bool:
    """Whether the light runtimes have it. Names of others are transformers' own, some with dots in them."""
    return "." not in family and importlib.util.find_spec(f"shoal.families.{family}") is not None


def _is_dense(facts: Facts) -> bool:
    return facts.kinds == ("dense",) and not facts.reads_pairs
