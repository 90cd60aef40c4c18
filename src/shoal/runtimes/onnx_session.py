"""ONNX Runtime's session, with the settings that every model runs under. Does not know what is in a graph."""

import logging
from pathlib import Path
from typing import Any

import onnxruntime

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Profile

log = logging.getLogger("shoal.onnx")


def open_session(model: bytes | Path, profile: Profile) -> Any:
    """An onnxruntime.InferenceSession that `profile.streams` threads may call at once.

    A file is given by its path, so that weights it keeps in other files are found, in its folder only: the
    engine refuses paths that lead out of it, and operators that it does not know. Raises ModelLoadFailed.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, profile.threads // profile.streams)
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Both grow with every shape they see and give nothing back.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    try:
        source = model if isinstance(model, bytes) else str(model)
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # its exceptions share no narrower base
        log.exception("a graph was refused")
        raise ModelLoadFailed("ONNX Runtime refuses the graph; the log has the details") from e
