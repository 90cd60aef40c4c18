"""A micro-batch as the tensors that a PyTorch encoder takes, under the names that transformers gives them.

Padded: [texts, length], each text at the left, or at the right where a next word is asked for. Packed: one row
[1, tokens], the texts one after another, with where each begins; for attention that can keep them apart.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from shoal.families import Prepared

Features = dict[str, Any]


def padded(batch: Sequence[Prepared], padding: int) -> Features:
    """`padding` is the id that fills up; some models tell positions by it. The last `unseen` are masked."""
    shape = len(batch), max(p.tokens for p in batch)
    ids = np.full(shape, padding, np.int64)
    segments, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, p in enumerate(batch):
        ids[row, : p.tokens] = p.ids
        segments[row, : p.tokens] = p.segments
        mask[row, : p.tokens - p.unseen] = 1
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def padded_before(batch: Sequence[Prepared], padding: int) -> Features:
    """Each text at the right, so that all end at the last place, whose logits alone are asked for."""
    shape = len(batch), max(p.tokens for p in batch)
    ids, mask = np.full(shape, padding, np.int64), np.zeros(shape, np.int64)
    for row, p in enumerate(batch):
        ids[row, -p.tokens :] = p.ids
        mask[row, -p.tokens :] = 1
    tensors = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    return tensors | {"logits_to_keep": 1, "modality": "message"}


def packed(batch: Sequence[Prepared], first_position: int) -> Features:
    """`first_position` is where the model begins to count. No text may have unseen tokens."""
    lengths = np.array([p.tokens for p in batch])
    starts = np.cumsum(lengths) - lengths
    bounds = torch.from_numpy(np.append(starts, lengths.sum()).astype(np.int32))
    positions = np.arange(lengths.sum()) - np.repeat(starts, lengths) + first_position
    longest = int(lengths.max())
    return {
        "input_ids": _row(chain.from_iterable(p.ids for p in batch)),
        "token_type_ids": _row(chain.from_iterable(p.segments for p in batch)),
        "position_ids": torch.from_numpy(positions)[None],
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def _row(values: "chain[int]") -> torch.Tensor:
    return torch.from_numpy(np.fromiter(values, np.int64))[None]


def unpadded(states: torch.Tensor, batch: Sequence[Prepared]) -> torch.Tensor:
    """Token states of either layout → [tokens, width], the texts one after another."""
    if len(states) == 1 and len(batch) != 1:
        return states[0]
    return torch.cat([row[: p.tokens] for row, p in zip(states, batch, strict=True)])
