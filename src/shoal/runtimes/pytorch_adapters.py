"""LoRA adapters beside an encoder's own linears: in one pass each text gets its own adapter's factors, or none.

Hooks add to what the linears give; where no text of a pass has an adapter they add nothing, and before the first
adapter came there are none. Does not know items' wishes, nor what is on top of the encoder.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from shoal.families import Prepared
from shoal.families.lora import read_adapter
from shoal.protocol.errors import InferenceError
from shoal.runtimes.pytorch_lowrank import Factors, Group, Pass

Held = dict[str, Factors]
"""One adapter's, by the name of the linear, on the model's device and in its precision."""


class _OnThread(threading.local):
    """What the pass of this thread is told of by the hooks."""

    now: Pass | None = None
    seen: dict[str, bool] | None = None
    """While it is watched: the linears that are called, and whether each sees text by text."""


class Adapters:
    def __init__(self, model: torch.nn.Module, *, uses_pooler: bool) -> None:
        """What no output is taken from is nothing to adapt: an encoder's pooler."""
        linears = ((name, m) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear))
        self._linears = {name: m for name, m in linears if uses_pooler or not name.endswith("pooler.dense")}
        self._held: dict[str, Held] = {}
        self._by_text: dict[str, bool] = {}
        self._thread = _OnThread()

    def __contains__(self, digest: str) -> bool:
        return digest in self._held

    def take(self, digest: str, folder: Path, try_some: Callable[[], object]) -> int:
        """Bytes of its factors. Raises ModelLoadFailed. `try_some` computes a few texts, which are watched before
        the first adapter comes."""
        if not self._by_text:
            self._by_text = self._watched(try_some)
        sites = {name: self._linears[name] for name in self._by_text}
        shapes = {name: (linear.out_features, linear.in_features) for name, linear in sites.items()}
        held: Held = {}
        for name, factors in read_adapter(folder, shapes).items():
            kind = sites[name].weight
            held[name] = Factors(*(torch.tensor(part, device=kind.device, dtype=kind.dtype) for part in factors))
        self._held[digest] = held
        return sum(part.nbytes for factors in held.values() for part in factors)

    def drop(self, digest: str) -> None:
        self._held.pop(digest, None)

    def passes(self, batch: Sequence[Prepared]) -> list[list[int]]:
        """Which items are computed together, and in which order: by adapter, those without last.

        All at once where every layer that is added to sees text by text; else each adapter's alone.
        """
        order = sorted(range(len(batch)), key=lambda i: (not batch[i].item.adapter, batch[i].item.adapter))
        by_adapter = [list(own) for _, own in groupby(order, key=lambda i: batch[i].item.adapter)]
        touched = {name for own in by_adapter for name in self._held.get(batch[own[0]].item.adapter, {})}
        return [order] if all(self._by_text[name] for name in touched) else by_adapter

    @contextlib.contextmanager
    def at_work(self, batch: Sequence[Prepared], *, is_packed: bool) -> Iterator[None]:
        """For one pass over what `passes` put together. Raises InferenceError for an adapter that is not held."""
        if self._thread.seen is None and not any(p.item.adapter for p in batch):
            yield
            return
        groups = []
        for digest, own in groupby(batch, key=lambda p: p.item.adapter):
            texts = list(own)
            groups.append(Group(self._of(digest), len(texts), sum(p.tokens for p in texts)))
        self._thread.now = Pass(groups, is_packed)
        try:
            yield
        finally:
            self._thread.now = None

    def _of(self, digest: str) -> Held:
        held = self._held.get(digest) if digest else {}
        if held is None:
            raise InferenceError(f"the adapter {digest} is not held by this runtime")
        return held

    def _watched(self, try_some: Callable[[], object]) -> dict[str, bool]:
        hooks = [
            linear.register_forward_hook(self._hook(name), with_kwargs=True)
            for name, linear in self._linears.items()
        ]
        seen = self._thread.seen = {}
        try:
            try_some()
        except BaseException:
            for hook in hooks:
                hook.remove()
            raise
        finally:
            self._thread.seen = None
        return seen

    def _hook(self, name: str) -> Any:
        thread = self._thread

        def hook(module: torch.nn.Module, args: Any, named: Any, output: Any) -> Any:
            now, seen = thread.now, thread.seen
            if now is None:
                return None
            x = args[0] if args else named["input"]
            if seen is None:
                return now.added(name, x, output)
            seen[name] = seen.get(name, True) and now.rows(x) is not None
            return None

        return hook
