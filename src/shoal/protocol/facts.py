"""What has to be known about a model to admit, batch, compute and answer: read once from its files.

Gateway and node decide from it, the task and the family read it, the runtime is started with it.
"""

from typing import Literal

import msgspec

Pooling = Literal["mean", "cls", "none"]
Activation = Literal["identity", "sigmoid"]


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`tasks` names files in tasks/, `family` one in families/. Lengths are in tokens, markers included."""

    tasks: tuple[str, ...]
    family: str
    files: Literal["safetensors", "onnx", "none"]
    max_tokens: int
    dims: int = 0
    """Width of a dense vector; 0 for a model that gives none."""
    matryoshka: tuple[int, ...] = ()
    """Shorter widths the model was trained for, in any order."""
    pooling: Pooling = "none"
    normalize: bool = False
    activation: Activation = "identity"
    """Turns a cross-encoder's logit into the score of the native route; foreign routes ask sigmoid."""
    prompts: dict[str, str] = {}
    """Prefixes by name, e.g. {"query": "query: "}; put before the text as they are."""
    default_prompt: str = ""
    """Name of the prompt used when a request names none; "" for none."""
    lowercase: bool = False
    """`do_lower_case` of sentence_bert_config.json: lower the text before the tokenizer sees it."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tuned settings of a model on one kind of device. Users never name it."""

    runtime: str
    device: str = "cpu"
    dtype: Literal["bf16", "fp32", "int8"] = "fp32"
    streams: int = 2
    threads: int = 0
    """Compute threads in all; 0 means one a stream."""
    batch_items: int = 32
    batch_tokens: int = 384
    """A micro-batch holds at most this many items and, above one item, this many tokens (ROAD: a cap on
    tokens matters more than anything else)."""
    tolerance: float = 0.9999
    """Least cosine to the reference's fp32 vectors that was measured for this dtype."""
