"""A model computed twice, in fp32 and in fewer bits, in this process and by the runtime that would serve it, and
what follows for its profile. One is loaded after the other, so that no more memory is needed than for serving.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Literal

import msgspec
import numpy as np

from shoal.catalog import Model
from shoal.catalog.profiles import Figure, Kept
from shoal.catalog.variants import variants_of
from shoal.lab import gate
from shoal.lab.gate_texts import Trial
from shoal.node import devices
from shoal.protocol.errors import InvalidInput, NonFiniteOutput, ShoalError
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.protocol.tensors import Array
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.runtimes.microbatch import cut
from shoal.tasks.maxsim import maxsim
from shoal.tasks.prompts import default_prompt, role_prompt

Row = dict[str, Array]
Narrow = Literal["bf16", "int8"]
_DISTRIBUTIONS = {"openvino": "openvino", "onnx": "onnxruntime", "pytorch": "torch"}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`near` is the least cosine to fp32, or what gate.Part says of scores; `rule` is the profile by rule.
    `promised` is the tolerance that the model's variant of that dtype is listed with, the bar of its worst cosine;
    0 where there is none.
    """

    dtype: Narrow
    figures: tuple[Figure, ...]
    near: float
    rule: Profile
    engine: str
    promised: float = 0.0

    @property
    def passed(self) -> bool:
        return all(figure.passed for figure in self.figures)

    def kept(self, by: str) -> Kept:
        """The profile that follows: the dtype if it passed, else fp32, also where the rule would say otherwise.
        Raises InvalidInput for 8-bit weights, which are a variant's: its users choose them."""
        if self.dtype == "int8":
            raise InvalidInput(
                "8-bit weights are a variant, which users choose by name; no profile decides on them"
            )
        return Kept(
            runtime=self.rule.runtime,
            device=self.rule.device,
            dtype=self.dtype if self.passed else "fp32",
            tolerance=rounded_down(self.near) if self.passed else max(0.9999, self.rule.tolerance),
            by=by,
            engine=self.engine,
            figures=self.figures,
        )


def judge(model: Model, dtype: Narrow, trial: Trial, tell: Callable[[str], None]) -> Verdict:
    """`tell` hears what is being done. Raises InvalidInput where there is no choice: a published graph has its
    precision, a stand-in none, and a processor may not compute that dtype; NonFiniteOutput where fp32 fails."""
    rule = devices.default_profile(model.facts, model.card.tolerance)
    if model.facts.files != "safetensors":
        raise InvalidInput(
            f"{model.name} is computed in the precision that its files have; there is nothing to decide"
        )
    variant = variants_of(model.card, model.facts).get(dtype)
    promised = variant.tolerance if variant is not None else 0.0
    items = list(_items(model.facts, trial))
    rule = msgspec.structs.replace(rule, streams=1, ahead=0, lone=False, threads=devices.cores())
    narrow = _computed(model, msgspec.structs.replace(rule, dtype=dtype), items, tell)
    exact = _computed(model, msgspec.structs.replace(rule, dtype="fp32"), items, tell)
    if not all(np.isfinite(values).all() for row in exact for values in row.values()):
        raise NonFiniteOutput(
            f"{model.name} gives values that are not finite in fp32; there is nothing to compare with"
        )
    parts = list(_parts(model.facts, trial, narrow, exact, promised or gate.DENSE))
    vectors = [part.near for name, part in parts if name != "score"]
    figures = [figure for _, part in parts for figure in part.figures]
    return Verdict(
        dtype=dtype,
        figures=tuple(figures),
        near=min(vectors or [part.near for _, part in parts]),
        rule=rule,
        engine=f"{rule.runtime} {metadata.version(_DISTRIBUTIONS[rule.runtime])}",
        promised=promised,
    )


def _computed(model: Model, profile: Profile, items: Sequence[Item], tell: Callable[[str], None]) -> list[Row]:
    """Raises InvalidInput where another dtype would be in force."""
    runtime = open_runtime(model.folder, model.facts, profile)
    if runtime.profile.dtype != profile.dtype:
        raise InvalidInput(
            f"{profile.runtime} does not compute {profile.dtype} on this machine; there is nothing to decide"
        )
    tell(f"computing {len(items)} texts in {profile.dtype}")
    return _rows(runtime, items)


def rounded_down(near: float) -> float:
    """To five digits, so that what is promised was measured; within what a profile may say."""
    return max(0.9, math.floor(near * 1e5) / 1e5)


def _items(facts: Facts, trial: Trial) -> Iterator[Item]:
    """Of a cross-encoder query after query with its candidates; of others all queries, then all documents."""
    prompts = {side: role_prompt(side, facts) for side in (True, False)}
    before = {side: default_prompt(facts) if prompt is None else prompt for side, prompt in prompts.items()}
    if facts.reads_pairs:
        for query, candidates in zip(trial.queries, trial.candidates, strict=True):
            for number in candidates:
                yield Item(query, pair=trial.documents[number], prompt=default_prompt(facts), raw=True)
        return
    for side, texts in ((True, trial.queries), (False, trial.documents)):
        for text in texts:
            yield Item(text, kinds=facts.kinds, is_query=side, prompt=before[side])


def _rows(runtime: Runtime, items: Sequence[Item]) -> list[Row]:
    """Raises what kept an item from being read."""
    batch = runtime.prepare(items)
    ready: list[Prepared] = []
    for entry in batch:
        if isinstance(entry, ShoalError):
            raise entry
        assert isinstance(entry, Prepared), "vectors and scores have to be computed"
        ready.append(entry)
    rows: list[Row] = [{} for _ in ready]
    for piece in cut([entry.tokens for entry in ready], 1, runtime.profile):
        for place, row in zip(piece, runtime.run([ready[i] for i in piece], 0).rows, strict=True):
            rows[place] = row
    return rows


def _parts(
    facts: Facts, trial: Trial, found: list[Row], exact: list[Row], bar: float
) -> Iterator[tuple[str, gate.Part]]:
    """By the kind of output, dense vectors by `bar`; "score" are those of pairs, or of queries and documents by
    their vectors."""
    sides = found, exact
    if "dense" in facts.kinds and not facts.reads_pairs:
        near, far = (np.stack([row["dense"] for row in rows]) for rows in sides)
        yield "dense", gate.dense(near, far, bar)
    if "sparse" in facts.kinds:
        width = 1 + max(int(row["sparse.indices"].max(initial=0)) for rows in sides for row in rows)
        yield "sparse", gate.sparse(*(np.stack([_spread_out(row, width) for row in rows]) for rows in sides))
    if "multivector" in facts.kinds:
        yield "multivector", gate.tokens(*([row["multivector"] for row in rows] for rows in sides))
    ranked = [_scores(facts, trial, rows) for rows in sides]
    columns = len(facts.labels) if facts.reads_pairs and len(facts.labels) > 1 else 1
    queries = [[scores[..., c] for scores in side for c in range(columns)] for side in ranked]
    # Of dense vectors alone the direction decides; of others the ranking too.
    is_ranked = facts.reads_pairs or facts.kinds != ("dense",)
    part = gate.scores(*queries, alone=facts.reads_pairs) if is_ranked else gate.Part([], 1.0)
    if trial.labelled and columns == 1:
        part.figures.append(gate.ndcg(*(side[: trial.labelled] for side in queries)))
    yield "score", part


def _spread_out(row: Row, width: int) -> Array:
    weights = np.zeros(width, np.float32)
    weights[row["sparse.indices"]] = row["sparse.values"]
    return weights


def _scores(facts: Facts, trial: Trial, rows: list[Row]) -> list[Array]:
    """For each query [candidates, columns]."""
    if facts.reads_pairs:
        ends = np.cumsum([len(candidates) for candidates in trial.candidates])[:-1]
        return np.split(np.stack([np.atleast_1d(row["score"]) for row in rows]), ends)
    queries, documents = rows[: len(trial.queries)], rows[len(trial.queries) :]
    return [
        np.array([[_match(facts, query, documents[number])] for number in candidates])
        for query, candidates in zip(queries, trial.candidates, strict=True)
    ]


def _match(facts: Facts, query: Row, document: Row) -> float:
    """How well they fit by the kind of vector that decides rankings."""
    if "multivector" in query:
        return maxsim(query["multivector"], document["multivector"])
    if "dense" in query:
        return float(query["dense"] @ document["dense"])
    shared, mine, yours = np.intersect1d(
        query["sparse.indices"], document["sparse.indices"], assume_unique=True, return_indices=True
    )
    return float(query["sparse.values"][mine] @ document["sparse.values"][yours]) if len(shared) else 0.0
