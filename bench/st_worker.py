"""sentence-transformers in a process of its own: `python bench/st_worker.py encoder|reranker FOLDER DEVICE`.

Asked by bench/worker.py. In fp32, with its own batches of 32.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from sentence_transformers import CrossEncoder, SentenceTransformer

from worker import answer


def timed(call: Callable[[int], object], seconds: float, warm_up_s: float) -> tuple[int, float, float]:
    """How often `call` was made, in how many seconds, and the median seconds of one. It gets its turn's number."""
    began = time.perf_counter()
    turn = 0
    while time.perf_counter() - began < warm_up_s:
        call(turn)
        turn += 1
    calls: list[float] = []
    while sum(calls) < seconds:
        before = time.perf_counter()
        call(turn)
        calls.append(time.perf_counter() - before)
        turn += 1
    return len(calls), sum(calls), statistics.median(calls)


def encoder(folder: str, device: str) -> None:
    model = SentenceTransformer(folder, device=device)

    def vectors(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False).tolist()

    def load(texts: list[str], at_once: int, seconds: float, warm_up_s: float = 1.0) -> Any:
        """Texts a second and the median seconds of a call with `at_once` texts."""

        def call(turn: int) -> None:
            some = [texts[(turn * at_once + i) % len(texts)] for i in range(at_once)]
            model.encode(some, batch_size=32, show_progress_bar=False)

        calls, took, median = timed(call, seconds, warm_up_s)
        return calls * at_once / took, median

    answer(vectors=vectors, load=load)


def reranker(folder: str, device: str) -> None:
    model = CrossEncoder(folder, device=device)

    def scores(query: str, documents: list[str]) -> Any:
        return model.predict([(query, document) for document in documents], show_progress_bar=False).tolist()

    def load(query: str, documents: list[str], seconds: float, warm_up_s: float = 1.0) -> Any:
        """Median seconds of a call with all the documents."""
        return timed(lambda turn: scores(query, documents), seconds, warm_up_s)[2]

    answer(scores=scores, load=load)


if __name__ == "__main__":
    {"encoder": encoder, "reranker": reranker}[sys.argv[1]](*sys.argv[2:])
