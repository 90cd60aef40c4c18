"""One encoder on its device: a batch of prepared items to the outputs that finish.py reads.

Knows where it runs and in which precision, and whether it runs packed. Does not know items' wishes.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from shoal.families import Prepared
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import pytorch_packed
from shoal.runtimes.cpu import has_bf16
from shoal.runtimes.pytorch_adapters import Adapters
from shoal.runtimes.pytorch_load import load_modules
from shoal.runtimes.pytorch_tensors import Features, packed, padded, padded_before, unpadded
from shoal.runtimes.turns import in_turn

log = logging.getLogger("shoal.pytorch")
_FEATURES = {
    "score": "scores", "dense": "sentence_embedding", "sparse": "sentence_embedding",
    "multivector": "token_embeddings",
}  # fmt: skip
"""What the library calls each output."""


class Encoder:
    def __init__(self, folder: Path, facts: Facts, profile: Profile) -> None:
        """Raises ModelLoadFailed. `profile` becomes the one in force: the device and precision that are here."""
        self.profile = _settled(profile)
        self.device = torch.device(self.profile.device)
        if self.device.type == "cpu":
            torch.set_num_threads(max(1, (profile.threads or profile.streams) // profile.streams))
        self.dtype = torch.bfloat16 if self.profile.dtype == "bf16" else torch.float32
        transformer, heads = load_modules(folder, facts)
        self._transformer = transformer.to(self.device, self.dtype)
        self._heads = {output: [head.to(self.device) for head in chain] for output, chain in heads.items()}
        self._padding: int = transformer.tokenizer.pad_token_id or 0
        self.chat: Any = transformer if transformer.transformer_task == "text-generation" else None
        """What lays a pair out by the model's chat template, where it is a language model."""
        self._has_segments = "token_type_ids" in transformer.tokenizer.model_input_names
        self.vocabulary: int = transformer.model.get_input_embeddings().num_embeddings
        self.positions, self._first_position = _positions(transformer.model)
        self.is_packed = False
        self.adapters = Adapters(transformer.model, uses_pooler="score" in heads)
        self._trial = self._some_texts(facts.max_tokens)

    def take_adapter(self, digest: str, folder: Path) -> int:
        """As `Adapting` says."""

        def try_some() -> None:
            in_turn(lambda: self(self._trial))
            if self.is_packed:  # but padded where some tokens are unseen
                in_turn(lambda: self([msgspec.structs.replace(p, unseen=1) for p in self._trial]))

        return self.adapters.take(digest, folder, try_some)

    def try_packed(self) -> None:
        """Run packed from now on, if the device gains by it and this model gives the same numbers so."""
        if "score" in self._heads or not pytorch_packed.has_kernel(self.device, self.dtype):
            return  # a classifier looks for each text's first token where padding would have put it
        batch = self._trial
        expected = self(batch)
        model = self._transformer.model
        usual = model.config._attn_implementation
        try:
            pytorch_packed.register()
            model.set_attn_implementation(pytorch_packed.NAME)  # ignored by models with their own attention
            self.is_packed = model.config._attn_implementation == pytorch_packed.NAME
            found = self(batch)
            self.is_packed = self.is_packed and all(_is_near(found[output], expected[output]) for output in found)
        except Exception:  # whatever a stranger's layers raise
            log.info("this model does not run packed", exc_info=True)
            self.is_packed = False
        if not self.is_packed:
            model.set_attn_implementation(usual)

    def _some_texts(self, max_tokens: int) -> list[Prepared]:
        # By padding's id some models tell positions, and no text holds it.
        tokens = [token for token in range(min(self.vocabulary, 1000)) if token != self._padding]
        random = np.random.default_rng(0)
        texts = [random.choice(tokens, min(length, max_tokens)).tolist() for length in (40, 3, 17)]
        return [Prepared(Item(), ids, [0] * len(ids)) for ids in texts]

    def __call__(self, batch: Sequence[Prepared]) -> dict[str, Array]:
        """ "dense" [texts, dims] · "sparse" [texts, vocabulary] · "score" [texts, labels] · "multivector" [tokens,
        dims], packed; fp32, on the CPU. Raises MemoryError where the device has too little for the batch."""
        is_out_of_memory = False
        try:
            with torch.inference_mode():
                computed = self._computed(batch)
                return {output: values.float().cpu().numpy() for output, values in computed.items()}
        except RuntimeError as e:
            if not _is_about_memory(e):
                raise
            is_out_of_memory = True
        # Only now, with the exception gone, is what the failed pass held free to be given back.
        if is_out_of_memory and self.device.type == "cuda":
            torch.cuda.empty_cache()
        raise MemoryError(f"{self.device} has too little memory for {len(batch)} items at once")

    def _computed(self, batch: Sequence[Prepared]) -> dict[str, torch.Tensor]:
        is_packed = self.is_packed and not any(p.unseen for p in batch)
        with self.adapters.at_work(batch, is_packed=is_packed):
            states = self._transformer(self._features(batch, is_packed))
        for name, value in states.items():
            if torch.is_tensor(value) and value.is_floating_point():
                states[name] = value.float()  # poolings and what follows add up many small numbers
        found: dict[str, torch.Tensor] = {}
        for output, heads in self._heads.items():
            features = dict(states)
            for head in heads:
                features = head(features)
            found[output] = features[_FEATURES[output]]
            if output == "multivector":
                found[output] = unpadded(found[output], batch)
        return found

    def _features(self, batch: Sequence[Prepared], is_packed: bool) -> Features:
        if self.chat is not None:
            return self._moved(padded_before(batch, self._padding))
        features = packed(batch, self._first_position) if is_packed else padded(batch, self._padding)
        if not self._has_segments:
            del features["token_type_ids"]
        return self._moved(features)

    def _moved(self, features: Features) -> Features:
        return {
            name: value.to(self.device, non_blocking=True) if torch.is_tensor(value) else value
            for name, value in features.items()
        }


def _settled(profile: Profile) -> Profile:
    """1. The device asked for, or the best one where it says "auto". 2. The CPU where that is not here. 3. bf16
    only where the device computes it in hardware."""
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    device = profile.device
    if device == "auto":  # 1
        device = next(name for name, is_here in here.items() if is_here)
    if not here.get(device.partition(":")[0]):  # 2
        log.warning("there is no %s here, so the CPU is used", device)
        device = "cpu"
    is_narrow = profile.dtype == "bf16" and _computes_bf16(device.partition(":")[0])  # 3
    return msgspec.structs.replace(profile, device=device, dtype="bf16" if is_narrow else "fp32")


def _computes_bf16(kind: str) -> bool:
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.backends.mps.is_macos_or_newer(14, 0)) if kind == "mps" else has_bf16()


def _positions(model: torch.nn.Module) -> tuple[int, int]:
    """How many positions a learned table has for tokens (0: there is no table), and the first one.

    RoBERTa and its kin begin after their padding's id.
    """
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding):
            first = getattr(module, "padding_idx", None)
            offset = first + 1 if isinstance(first, int) else 0
            return table.num_embeddings - offset, offset
    return 0, 0


def _is_about_memory(error: RuntimeError) -> bool:
    """CPUs and some drivers raise a plain RuntimeError."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in said or "allocate memory" in said


def _is_near(found: Array, expected: Array) -> bool:
    """Whether every row is far nearer to its own than rows usually are to each other, which differs by model."""
    a, b = (rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (found, expected))
    apart = np.median((1 - b @ b.T)[np.triu_indices(len(b), 1)])
    return bool((1 - (a * b).sum(-1)).max() <= 0.02 * apart)
