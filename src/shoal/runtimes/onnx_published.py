"""Models published as `model.onnx`: their graph as it is, all that is put on top outside it in fp32.

Knows the names that exporters give to inputs and outputs. Does not know how the graph computes, but for one thing:
whether it quantises on the fly, which makes a text's numbers depend on its neighbours.
"""

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shoal.families import Prepared, family_named
from shoal.families.finish import finish
from shoal.families.outside import Outside
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import Ran, Read
from shoal.runtimes.onnx_session import open_session
from shoal.runtimes.turns import in_turn

_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_STATES = ("last_hidden_state", "token_embeddings")


class PublishedRuntime:
    """Texts are padded to the longest of their batch. Where the graph takes its int8 scales from the values that
    it happens to see, each text runs alone: batched, the ms-marco reranker's logits move by up to 0.6.
    """

    def __init__(self, folder: Path, facts: Facts, profile: Profile) -> None:
        """Raises ModelLoadFailed."""
        path = folder / "model.onnx"
        self._facts = facts
        self._alone = _quantises_on_the_fly(path)
        self._session = open_session(path, profile)
        self.profile = msgspec.structs.replace(profile, dtype="int8" if self._alone else "fp32")
        self._dtypes = _inputs(self._session)
        self._output = _output(self._session, facts)
        self._outside = Outside(folder, facts)
        self._reader = family_named(facts.family).open_reader(folder, facts)

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], stream: int) -> Ran:
        parts = [[prepared] for prepared in batch] if self._alone else [batch]
        values, seconds = in_turn(lambda: [self._compute(part) for part in parts])
        rows = [row for part, found in zip(parts, values, strict=True) for row in finish(found, part, self._facts)]
        return Ran(rows, sum(len(part) * max(p.tokens for p in part) for part in parts), seconds)

    def _compute(self, batch: Sequence[Prepared]) -> dict[str, Array]:
        """The outputs that heads.py names."""
        shape = (len(batch), max(p.tokens for p in batch))
        arrays: dict[str, Array] = {name: np.zeros(shape, dtype) for name, dtype in self._dtypes.items()}
        mask = np.zeros(shape, np.int64)
        for i, prepared in enumerate(batch):
            mask[i, : prepared.tokens - prepared.unseen] = 1
            arrays["input_ids"][i, : prepared.tokens] = prepared.ids
            if "token_type_ids" in arrays:
                arrays["token_type_ids"][i, : prepared.tokens] = prepared.segments
        if "attention_mask" in arrays:
            arrays["attention_mask"][:] = mask
        values: Array = self._session.run([self._output], arrays)[0].astype(np.float32, copy=False)
        return self._outside.outputs(values, mask, [prepared.tokens for prepared in batch])


def _inputs(session: Any) -> dict[str, type]:
    """Name and dtype of each. Raises ModelLoadFailed for one that we would not know how to fill."""
    dtypes = {entry.name: _DTYPES.get(entry.type) for entry in session.get_inputs()}
    unknown = [name for name, dtype in dtypes.items() if name not in _INPUTS or dtype is None]
    if unknown or "input_ids" not in dtypes:
        raise ModelLoadFailed(f"the graph's inputs are {', '.join(dtypes)}; we know {', '.join(sorted(_INPUTS))}")
    return {name: dtype for name, dtype in dtypes.items() if dtype is not None}


def _usual_outputs(facts: Facts) -> tuple[str, ...]:
    if facts.reads_pairs or facts.kinds == ("sparse",):
        return ("logits",)
    return ("sentence_embedding", *_STATES) if facts.kinds == ("dense",) else _STATES


def _output(session: Any, facts: Facts) -> str:
    """The first of the usual names that the graph has, else its only output."""
    names: list[str] = [entry.name for entry in session.get_outputs()]
    usual = _usual_outputs(facts)
    found = [name for name in usual if name in names] or (names if len(names) == 1 else [])
    if not found:
        raise ModelLoadFailed(f"the graph's outputs are {', '.join(names)}; none is {', '.join(usual)}")
    return found[0]


def _quantises_on_the_fly(path: Path) -> bool:
    """Whether an operator's name in the file says so: DynamicQuantizeLinear, DynamicQuantizeMatMul, …"""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped.find(b"DynamicQuantize") >= 0
    except (OSError, ValueError) as e:
        raise ModelLoadFailed(f"cannot read {path.name}: {e}") from e
