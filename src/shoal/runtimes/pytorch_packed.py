"""Attention over packed texts: each token looks at its own text alone, and no padding is computed.

Registered with transformers, so that every model which leaves attention to it can run packed. PyTorch's own
kernel does the work on CUDA in half precision; elsewhere the texts are gone through one by one, which serves to
try this file where there is no such device.
"""

import importlib.util
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "shoal_packed"


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packed is faster here: the kernel is FlashAttention 2, for Ampere and later."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (8, 0))


def register() -> None:
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def mask(*args: Any, attention_mask: torch.Tensor | None = None, **settings: Any) -> torch.Tensor | None:
    """None for packed texts, which bring no mask; for padded ones as transformers makes it."""
    if attention_mask is None:
        return None
    made: torch.Tensor | None = sdpa_mask(*args, attention_mask=attention_mask, **settings)
    return made


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, heads, tokens, depth], key and value maybe with fewer heads → [1, tokens, heads, depth].

    Raises NotImplementedError for what the kernel cannot do: biases, softcaps, sinks.
    """
    if "cu_seq_lens_q" not in more:
        made, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **more
        )
        return made, None
    unknown = [name for name in ("softcap", "s_aux", "position_bias") if more.get(name) is not None]
    if unknown or attention_mask is not None or len(query) != 1:
        raise NotImplementedError(f"packed attention with {unknown or 'a mask'}")
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    reach = -1 if sliding_window is None else sliding_window - 1
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    compute = _on_cuda if query.is_cuda else _one_by_one
    return compute(q, k, v, more, scaling, (reach, 0 if causal else reach))[None], None


def _on_cuda(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, more: Any, scaling: float | None, window: tuple[int, int]
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    bounds, longest = more["cu_seq_lens_q"], more["max_length_q"]
    grouped = q.shape[1] != k.shape[1]
    made: torch.Tensor = varlen_attn(
        q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=window, enable_gqa=grouped
    )  # fmt: skip
    return made


def _one_by_one(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, more: Any, scaling: float | None, window: tuple[int, int]
) -> torch.Tensor:
    """The same numbers without the kernel; [tokens, heads, depth] in and out."""
    left, right = window
    parts = []
    for start, end in pairwise(more["cu_seq_lens_q"].tolist()):
        place = torch.arange(end - start, device=q.device)
        ahead = place[None] - place[:, None]
        seen = torch.ones_like(ahead, dtype=torch.bool)
        seen &= (ahead >= -left) if left >= 0 else seen
        seen &= (ahead <= right) if right >= 0 else seen
        query, key, value = (part[start:end].transpose(0, 1)[None] for part in (q, k, v))
        grouped = q.shape[1] != k.shape[1]
        made = scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling, enable_gqa=grouped)
        parts.append(made[0].transpose(0, 1))
    return torch.cat(parts)
