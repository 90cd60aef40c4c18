"""One push on trial: its files fetched, looked at as `shoal add` does, loaded by the ordinary scheduler in a line
that nobody can ask for, and a few rows of it computed: every value finite, and near the reference that came along.

What was proved stays in memory until its name is told; then it is served from there.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.catalog import Artifact, Card, Model
from shoal.catalog.adapter import base_of, check_fit, is_adapter
from shoal.catalog.apart import checked_apart
from shoal.catalog.artifacts import size_of
from shoal.catalog.names import parse_name
from shoal.catalog.proof import LINE, Prove, Proved, Row, check_facts
from shoal.node.agent import Agent
from shoal.node.agreement import Agreement, compare
from shoal.node.fetching import Fetching
from shoal.node.own import compute
from shoal.node.stock import NodeStock
from shoal.protocol.errors import InferenceError, InvalidInput, ModelLoadFailed, ModelNotFound
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.tasks.prompts import default_prompt, named_prompt, text_fault

KEPT_S = 60.0
"""From its proof until its name is told."""
TEXTS = (
    "fish",
    "Small fish swim in a shoal.",
    "Wo ist hier der nächste Bahnhof?",
    "鱼群 42",
    "a long text " * 400,
)
"""Whatever a model is for, it makes numbers of these, the last of which most models cut off."""


class NotHere(ModelNotFound):
    """Another node may have what this one lacks: the base of an adapter, or the object store that is meant."""


class Trial:
    """`objects` is the id of the object store that `files` come from."""

    def __init__(
        self, agent: Agent, stock: NodeStock, files: Fetching, node: str, objects: str, within_s: float
    ) -> None:
        self._agent, self._stock, self._files = agent, stock, files
        self._node, self._objects, self._within_s = node, objects, within_s
        self._until: asyncio.TimerHandle | None = None

    async def prove(self, asked: Prove, deadline: float) -> Proved:
        """Raises a ShoalError with the reason: InvalidInput for what lies in the push, or another."""
        self.let_go()
        if asked.objects != self._objects:
            raise NotHere("no node that proves pushes has the object store of the gateway that took it")
        check_facts(asked.facts)
        folder = await self._files.artifact(asked.digest)
        try:
            async with asyncio.timeout(self._within_s) as bound:
                return await self._prove(asked, folder, deadline)
        except TimeoutError:
            if not bound.expired():
                raise
            raise _too_slow(asked.name, self._within_s) from None

    async def _prove(self, asked: Prove, folder: Path, deadline: float) -> Proved:
        card = Card(name=asked.name, source=Artifact(asked.digest), facts=asked.facts)
        if await asyncio.to_thread(is_adapter, folder):
            return await self._adapter(asked, card, folder, deadline)
        return await self._model(asked, card, folder, deadline)

    def let_go(self) -> None:
        """Of what was tried last, unless it is served by now."""
        if self._until is not None:
            self._until.cancel()
            self._until = None
        model = self._stock.proving.pop(LINE, None)
        if model is not None and model.card.base and not self._stock.is_told(model.digest):
            self._agent.scheduler.taking.replaced(model, None, time.time())
        if LINE in self._agent.scheduler.lines:
            self._agent.scheduler.private.abandon(LINE)
            self._agent.scheduler.forget(LINE, time.time())

    async def _model(self, asked: Prove, card: Card, folder: Path, deadline: float) -> Proved:
        if asked.base:
            raise InvalidInput(
                f"these files are a model of their own, not an adapter of {asked.base}; push them without a base",
                param="base",
            )
        card, facts = await checked_apart(folder, card)
        model = self._on_trial(card, facts, folder)
        self._agent.take_up(LINE)
        agreement = await self._compare(asked, model, None, deadline)
        self._agent.scheduler.private.proved(LINE)
        return self._proved(card, model, agreement)

    async def _adapter(self, asked: Prove, card: Card, folder: Path, deadline: float) -> Proved:
        """The base is loaded here too, and beside it the adapter taken, as for anyone who asks."""
        if asked.facts:
            raise InvalidInput("an adapter has the facts of its base; push it without any", param="facts")
        base = self._base(asked.base, folder)
        base = msgspec.structs.replace(base, folder=await self._files.ready(base))
        await asyncio.to_thread(check_fit, folder, base)
        card = msgspec.structs.replace(card, base=base.name)
        adapter = self._on_trial(card, base.facts, folder)
        self._agent.take_up(base.name)
        agreement = await self._compare(asked, base, adapter, deadline)
        proved = self._proved(card, adapter, agreement)
        return msgspec.structs.replace(proved, base=base.name, base_digest=base.digest)

    def _base(self, asked: str, folder: Path) -> Model:
        """Raises NotHere; InvalidInput for what can be no adapter's base."""
        if not asked:
            return base_of(folder, "", self._stock.by_words(), {})
        try:
            base = self._stock.resolve(asked)
        except ModelNotFound as error:
            raise NotHere(f"no node that proves pushes has the base: {error.message}") from error
        return base_of(folder, asked, {parse_name(asked).name: base}, {})

    def _on_trial(self, card: Card, facts: Facts, folder: Path) -> Model:
        """What nodes, and nobody else, call by the name of the line."""
        assert isinstance(card.source, Artifact)
        model = self._stock.proving[LINE] = Model(
            card=msgspec.structs.replace(card, name=LINE), facts=facts, folder=folder, digest=card.source.digest,
            size_bytes=size_of(folder),
        )  # fmt: skip
        return model

    def _proved(self, card: Card, model: Model, agreement: Agreement | None) -> Proved:
        self._until = asyncio.get_running_loop().call_later(KEPT_S, self.let_go)
        return Proved(
            card=card, facts=model.facts, size_bytes=model.size_bytes, node=self._node,
            rows_compared=agreement.rows if agreement else 0, nearest=agreement.nearest if agreement else None,
        )  # fmt: skip

    async def _compare(
        self, asked: Prove, model: Model, adapter: Model | None, deadline: float
    ) -> Agreement | None:
        """Raises InvalidInput with the reason where it cannot be loaded, or computes nothing that can be used."""
        facts, reference = model.facts, asked.reference
        pair = TEXTS[1] if facts.reads_pairs else None
        items = [Item(text=text, pair=pair, prompt=default_prompt(facts), kinds=facts.kinds) for text in TEXTS]
        items += [_item(number, row, facts) for number, row in enumerate(reference)]
        try:
            outputs = await compute(self._agent.scheduler, model, adapter, items, deadline)
        except (ModelLoadFailed, InferenceError) as error:
            if error.detail.get("error_class") == "OverBudget":
                raise
            raise _refused(asked.name, error.message, error.code) from error
        for item, output in zip(items, outputs, strict=True):
            if output.fault is not None:
                of = f"{item.text[:60]!r}: {output.fault.message}"
                raise _refused(asked.name, of, output.fault.code)
        if not reference:
            return None
        profile = self._agent.scheduler.lines[model.name].profile
        agreement = compare(reference, outputs[len(TEXTS) :], facts, profile)
        if not agreement.holds:
            raise _differs(asked.name, reference, agreement, profile)
        return agreement


def _item(number: int, row: Row, facts: Facts) -> Item:
    """Raises InvalidInput, naming the row."""
    if (row.pair is None) == facts.reads_pairs:
        wants = "pairs (`pair`, or `query` and `document`)" if facts.reads_pairs else "single texts"
        raise InvalidInput(
            f"reference row {number} does not suit this model, which reads {wants}", param="reference"
        )
    for text in (row.text, row.pair):
        if text is not None and (fault := text_fault(text)) is not None:
            raise InvalidInput(f"reference row {number}: {fault.message}", param="reference")
    prompt = named_prompt(row.prompt, facts) if row.prompt else default_prompt(facts)
    return Item(text=row.text, pair=row.pair, prompt=prompt, kinds=facts.kinds)


def _refused(name: str, why: str, code: str) -> InvalidInput:
    return InvalidInput(f"{name} was tried and does not work: {why.replace(LINE, name)}", reason=code)


def _too_slow(name: str, limit_s: float) -> InvalidInput:
    """Not to be tried again as it is: it would keep the next node from other pushes as long."""
    return InvalidInput(
        f"{name} was tried and given up: to look at its files, load it and compute a few rows takes longer than "
        f"the limit of {limit_s:g} s; --prove-within of the node changes it",
        reason="TOO_SLOW",
        limit=limit_s,
        setting="--prove-within",
    )


def _differs(name: str, rows: Sequence[Row], agreement: Agreement, profile: Profile) -> InvalidInput:
    what = "agreement" if rows[0].pair is not None else "cosine"
    return InvalidInput(
        f"{name} does not compute what its reference says: of {agreement.rows} rows the worst, row "
        f"{agreement.where} ({rows[agreement.where].text[:60]!r}), has a {what} of {agreement.nearest:.5f}, and "
        f"{agreement.bar} is needed ({profile.dtype} on {profile.runtime}). Are prompt, pooling and normalisation "
        "the same?",
        nearest=agreement.nearest,
        bar=agreement.bar,
        row=agreement.where,
    )
