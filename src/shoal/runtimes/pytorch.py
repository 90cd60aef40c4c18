"""PyTorch, as an extra: every text encoder that sentence-transformers or transformers can load from files, on
whatever device is here; and what the light runtimes are compared with.

Knows how to refuse without PyTorch, and which reader belongs to a model. The model itself is pytorch_encoder.py.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal.families import Prepared, Reader, family_named
from shoal.families.finish import Row, finish
from shoal.families.tokenize import TextReader, load_tokenizer
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Ran, Read
from shoal.runtimes.pytorch_chat import ChatReader
from shoal.runtimes.pytorch_files import check_files
from shoal.runtimes.turns import in_turn
from shoal.runtimes.warmup import warm_up

if TYPE_CHECKING:
    from shoal.runtimes.pytorch_encoder import Encoder


def open_runtime(folder: Path, facts: Facts, profile: Profile) -> "PyTorchRuntime":
    """Raises ModelLoadFailed."""
    if facts.files != "safetensors":
        raise ModelLoadFailed("runtime pytorch loads safetensors; this model has none")
    if profile.dtype == "int8":
        raise ModelLoadFailed("runtime pytorch has no 8-bit weights; ask for the model without `:int8`")
    check_files(folder)
    # Read once, when the libraries are imported.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        from shoal.runtimes.pytorch_encoder import Encoder
    except ModuleNotFoundError as e:
        raise ModelLoadFailed(
            f"this model needs PyTorch: pip install 'shoal[pytorch]' (there is no {e.name})"
        ) from e
    encoder = Encoder(folder, facts, profile)
    reader = _open_reader(folder, facts) if encoder.chat is None else ChatReader(encoder.chat, folder, facts)
    runtime = PyTorchRuntime(reader, encoder, facts)
    warm_up(runtime, facts)
    return runtime


class PyTorchRuntime:
    def __init__(self, reader: Reader, encoder: "Encoder", facts: Facts) -> None:
        """Raises ModelLoadFailed where the reader could ask for rows that the model's tables have not got."""
        self.profile = encoder.profile
        self._reader, self._encoder = reader, encoder
        tokens = getattr(reader, "vocabulary", 0)
        if tokens > encoder.vocabulary:
            raise ModelLoadFailed(f"the tokenizer has {tokens} tokens, the model only {encoder.vocabulary}")
        if encoder.positions and facts.max_tokens > encoder.positions:
            raise ModelLoadFailed(
                f"max_tokens is {facts.max_tokens}, but the model has {encoder.positions} positions"
            )
        self._facts = facts
        if facts.sparse is not None:
            # Their pooling takes the logs that finish.py takes after a maximum.
            self._facts = msgspec.structs.replace(
                facts, sparse=msgspec.structs.replace(facts.sparse, pooling="sum")
            )
        encoder.try_packed()

    def prepare(self, items: Sequence[Item]) -> list[Read]:
        return self._reader.prepare(items)

    def run(self, batch: Sequence[Prepared], slot: int) -> Ran:
        rows: dict[int, Row] = {}
        tokens, seconds = 0, None
        for own in self._encoder.adapters.passes(batch):
            ran = self._run([batch[i] for i in own])
            rows |= zip(own, ran.rows, strict=True)
            tokens += ran.tokens
            seconds = ran.seconds if seconds is None else seconds + (ran.seconds or 0)
        return Ran([rows[i] for i in range(len(batch))], tokens, seconds)

    def take_adapter(self, digest: str, folder: Path) -> int:
        return self._encoder.take_adapter(digest, folder)

    def drop_adapter(self, digest: str) -> None:
        self._encoder.adapters.drop(digest)

    def _run(self, batch: Sequence[Prepared]) -> Ran:
        on_processor = self._encoder.device.type == "cpu"
        values, seconds = in_turn(lambda: self._encoder(batch)) if on_processor else (self._encoder(batch), None)
        longest = max(p.tokens for p in batch)
        tokens = sum(p.tokens for p in batch) if self._encoder.is_packed else longest * len(batch)
        return Ran(finish(values, batch, self._facts), tokens, seconds)


def _open_reader(folder: Path, facts: Facts) -> Reader:
    try:
        family = family_named(facts.family)
    except InvalidInput:
        return TextReader(load_tokenizer(folder), facts)
    return family.open_reader(folder, facts)
