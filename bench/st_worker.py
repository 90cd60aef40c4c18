"""sentence-transformers in a process of its own: `python bench/st_worker.py encoder|reranker FOLDER DEVICE`.

Asked by bench/worker.py. In fp32, with its own batches of 32.
"""

import sys
from typing import Any

from sentence_transformers import CrossEncoder, SentenceTransformer

from timed import timed
from worker import answer


def encoder(folder: str, device: str) -> None:
    model = SentenceTransformer(folder, device=device)

    def vectors(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False).tolist()

    def load(texts: list[str], at_once: int, seconds: float) -> Any:
        """Texts a second and the median seconds of a call with `at_once` texts."""

        def call(turn: int) -> None:
            some = [texts[(turn * at_once + i) % len(texts)] for i in range(at_once)]
            model.encode(some, batch_size=32, show_progress_bar=False)

        found = timed(call, seconds)
        return found.calls * at_once / found.seconds, found.median_s

    answer(vectors=vectors, load=load)


def reranker(folder: str, device: str) -> None:
    model = CrossEncoder(folder, device=device)

    def scores(query: str, documents: list[str]) -> Any:
        return model.predict([(query, document) for document in documents], show_progress_bar=False).tolist()

    def load(query: str, documents: list[str], seconds: float) -> Any:
        """Median seconds of a call with all the documents."""
        return timed(lambda turn: scores(query, documents), seconds).median_s

    answer(scores=scores, load=load)


if __name__ == "__main__":
    {"encoder": encoder, "reranker": reranker}[sys.argv[1]](*sys.argv[2:])
