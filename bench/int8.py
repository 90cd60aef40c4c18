"""What 8-bit weights do to an encoder's vectors: `python bench/int8.py MODEL PAIRS.jsonl`.

MODEL is an installed model's name or a folder of one; PAIRS has a question "q" and its one right answer "a" a line
(zaragoza-construction-faq 1.2.1, data/faq-en.jsonl). Prints the cosine to fp32 of every text, nDCG@10 of both,
and what batching changes. Writes nothing.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np

from shoal.catalog.store import Store
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, open_runtime


def main(name: str, pairs: str) -> None:
    lines = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    questions, answers = [line["q"] for line in lines], [line["a"] for line in lines]
    model = Store().resolve(name)
    exact, narrow = (
        open_runtime(model.folder, model.facts, Profile(runtime="openvino", dtype=dtype, streams=1, threads=2))
        for dtype in ("fp32", "int8")
    )
    expected = [vectors(exact, texts) for texts in (questions, answers)]
    found = [vectors(narrow, texts) for texts in (questions, answers)]
    report("int8 to fp32", np.concatenate(found), np.concatenate(expected))
    for label, (queries, documents) in (("fp32", expected), ("int8", found)):
        print(f"nDCG@10 {label}: {ndcg_at_10(queries, documents):.4f}")
    texts = random.Random(1).sample(questions + answers, 256)
    alone = np.concatenate([vectors(narrow, [text]) for text in texts])
    report("in batches of 32 to alone", vectors(narrow, texts), alone)
    order = random.Random(2).sample(range(len(texts)), len(texts))
    shuffled = vectors(narrow, [texts[i] for i in order])
    report("shuffled to alone", shuffled[np.argsort(order)], alone)


def vectors(runtime: Runtime, texts: list[str]) -> np.ndarray:
    rows = []
    for start in range(0, len(texts), 32):
        batch = runtime.prepare([Item(text, normalize=True) for text in texts[start : start + 32]])
        rows += [row["dense"] for row in runtime.run(batch, 0).rows]
    return np.stack(rows)


def report(what: str, a: np.ndarray, b: np.ndarray) -> None:
    cosines = (a * b).sum(axis=1)
    print(f"cosine {what}: worst {cosines.min():.5f}, mean {cosines.mean():.5f}, of {len(cosines)} texts")


def ndcg_at_10(queries: np.ndarray, documents: np.ndarray) -> float:
    """Of vectors of length one, document i the only right one for query i (Järvelin, Kekäläinen)."""
    scores = queries @ documents.T
    ranks = (scores > scores.diagonal()[:, None]).sum(axis=1)
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())


if __name__ == "__main__":
    main(*sys.argv[1:])
