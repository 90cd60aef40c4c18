"""Low-rank factors added to what one linear gave, for a pass in which groups of texts have different ones or none.

Knows tensors and where each group's rows lie in them. Does not know adapters by name, nor models.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from shoal.protocol.errors import InferenceError


def at_once(device: torch.device) -> int:
    """How many columns of several groups' factors are one product, of which each row keeps its own. Where a launch
    costs more than what is computed in vain; a processor's costs nothing."""
    return 0 if device.type == "cpu" else 128


class Factors(NamedTuple):
    """`a` [rank, in] and `b` [out, rank], as families/lora.py says."""

    a: torch.Tensor
    b: torch.Tensor


class Group(NamedTuple):
    """Texts beside each other in a pass that have the same factors, by the name of the linear."""

    factors: Mapping[str, Factors]
    texts: int
    tokens: int


class _Span(NamedTuple):
    """Rows from `start` to `end` of all that a linear was given."""

    start: int
    end: int
    factors: Factors


class Pass:
    """One forward pass, `groups` in the order of their texts; packed, or each text padded to the longest."""

    def __init__(self, groups: Sequence[Group], is_packed: bool) -> None:
        self._groups, self._is_packed = groups, is_packed
        self._masks: dict[tuple[tuple[int, int], ...], torch.Tensor] = {}

    def rows(self, x: torch.Tensor) -> list[int] | None:
        """How many rows of x [..., in] belong to each group. None where x is not text by text."""
        rows = x.numel() // max(1, x.shape[-1])
        if self._is_packed:
            own = [group.tokens for group in self._groups]
            return own if sum(own) == rows else None
        texts = sum(group.texts for group in self._groups)
        if x.ndim < 2 or x.shape[0] != texts:
            return None
        return [group.texts * (rows // texts) for group in self._groups]

    def added(self, name: str, x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """`output` [..., out], with what the factors make of x; in place where that can be. Where all texts have
        the same, x may be anything. Raises InferenceError where they differ and x is not text by text."""
        if not any(name in group.factors for group in self._groups):
            return output
        output = output.contiguous()
        given, gave = x.reshape(-1, x.shape[-1]), output.view(-1, output.shape[-1])
        for spans in self._products(name, x, len(given)):
            start, end = spans[0].start, spans[-1].end
            down = torch.cat([span.factors.a for span in spans]) if len(spans) > 1 else spans[0].factors.a
            up = torch.cat([span.factors.b for span in spans], dim=1) if len(spans) > 1 else spans[0].factors.b
            inner = given[start:end] @ down.t()
            if len(spans) > 1:
                inner.masked_fill_(self._others(spans, inner.device), 0)
            gave[start:end].addmm_(inner, up.t())
        return output

    def _products(self, name: str, x: torch.Tensor, count: int) -> Iterator[list[_Span]]:
        """What is multiplied at once: rows that lie beside each other."""
        widest = at_once(x.device)
        spans: list[_Span] = []
        for span in self._spans(name, x, count):
            columns = sum(len(each.factors.a) for each in [*spans, span])
            if spans and (spans[-1].end != span.start or columns > widest):
                yield spans
                spans = []
            spans.append(span)
        yield spans

    def _spans(self, name: str, x: torch.Tensor, count: int) -> Iterator[_Span]:
        if len(self._groups) == 1:
            yield _Span(0, count, self._groups[0].factors[name])
            return
        rows = self.rows(x)
        if rows is None:
            raise InferenceError(f"layer {name} sees texts of several adapters at once")
        for group, end, own in zip(self._groups, accumulate(rows), rows, strict=True):
            if name in group.factors:
                yield _Span(end - own, end, group.factors[name])

    def _others(self, spans: Sequence[_Span], device: torch.device) -> torch.Tensor:
        """[rows, columns]: where a row meets another's columns. Most layers of a pass share one."""
        shape = tuple((span.end - span.start, len(span.factors.a)) for span in spans)
        if shape not in self._masks:
            owners = torch.arange(len(shape))
            by_row = owners.repeat_interleave(torch.tensor([rows for rows, _ in shape]))
            by_column = owners.repeat_interleave(torch.tensor([columns for _, columns in shape]))
            self._masks[shape] = (by_row[:, None] != by_column[None]).to(device)
        return self._masks[shape]
