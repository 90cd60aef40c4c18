"""The first bars: Shoal over HTTP against sentence-transformers in process, the same MiniLM, the same cores.

    python bench/first.py [--seconds 4] [--pairs 5]

Both sides are measured in turn, `--pairs` times, and the median ratio counts: shared machines drift by more
than the differences of interest. Prints every bar beside its figure; exits 1 where one is not reached.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from bars import Bars
from shoal.catalog.store import Store
from shoal.lab.load import Request, Target, closed
from shoal.lab.mixes import short, texts_of
from shoal.testing.server import serving

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
CONNECTIONS = (1, 8, 32, 128)
FIRST_VECTOR = """
import os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], device="cpu").encode(["hello world"])
"""


def request(text: str) -> Request:
    body = {"model": MODEL, "input": text, "encoding_format": "base64"}
    return Request("/v1/embeddings", json.dumps(body).encode())


def seconds_to_first_vector_here(home: Path) -> float:
    """From the start of the process to the first vector over HTTP."""
    began = time.perf_counter()
    with serving(home, "--pin", MODEL) as server:
        post(server.port, {"model": MODEL, "input": "hello world"})
        return time.perf_counter() - began


def seconds_to_first_vector_there(folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST_VECTOR, str(folder)], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def post(port: int, body: dict[str, Any], path: str = "/v1/embeddings") -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def in_process(reference: Any, texts: list[str], at_once: int, seconds: float) -> tuple[float, float]:
    """Texts a second and the median seconds of a call, `at_once` texts a call in batches of 32 at most."""
    calls: list[float] = []
    began = time.perf_counter()
    place = 0
    while time.perf_counter() - began < seconds:
        some = [texts[(place + i) % len(texts)] for i in range(at_once)]
        place += at_once
        before = time.perf_counter()
        reference.encode(some, batch_size=32, show_progress_bar=False)
        calls.append(time.perf_counter() - before)
    return len(calls) * at_once / sum(calls), statistics.median(calls)


def check_vectors(bars: Bars, reference: Any, port: int) -> None:
    import numpy as np

    texts = texts_of(short, 200, seed=9) + ["word " * n for n in (1, 50, 254, 400)]
    theirs = reference.encode(texts, normalize_embeddings=True)
    ours = [entry["embedding"] for entry in post(port, {"model": MODEL, "input": texts})["data"]]
    alone = [post(port, {"model": MODEL, "input": text})["data"][0]["embedding"] for text in texts[::10]]
    shuffled = [entry["embedding"] for entry in post(port, {"model": MODEL, "input": texts[::-1]})["data"]][::-1]
    bars.check("worst cosine to sentence-transformers fp32", worst(np, ours, theirs), "≥", 0.9999)
    bars.check("worst cosine, alone against batched", worst(np, alone, ours[::10]), "≥", 0.9999)
    bars.check("worst cosine, shuffled against batched", worst(np, shuffled, ours), "≥", 0.9999)


def worst(np: Any, one: Any, other: Any) -> float:
    return float((np.asarray(one) * np.asarray(other)).sum(1).min())


def check_scores(bars: Bars, folder: Path, port: int) -> None:
    """Against the ONNX reranker run alone in its own engine, each pair by itself, as the artifact is."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    query, documents = (
        "capital of France",
        ["Paris is the capital.", "London is in England.", *texts_of(short, 20, seed=1)],
    )
    names = {entry.name for entry in session.get_inputs()}
    alone = []
    for document in documents:
        tokens = tokenizer.encode(query, document)
        feeds = {
            "input_ids": tokens.ids,
            "attention_mask": tokens.attention_mask,
            "token_type_ids": tokens.type_ids,
        }
        feeds = {name: np.array([values], "i8") for name, values in feeds.items() if name in names}
        alone.append(float(session.run(None, feeds)[0].reshape(-1)[0]))
    body = {"query": query, "documents": documents, "model": RERANKER, "raw_scores": True}
    ranked = post(port, body, "/v1/rerank")["results"]
    ours = {entry["index"]: entry["relevance_score"] for entry in ranked}
    apart = max(abs(ours[index] - score) for index, score in enumerate(alone))
    bars.check("largest difference of a score to the ONNX reranker alone", apart, "≤", 1e-3)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    options.add_argument("--pairs", type=int, default=5)
    arguments = options.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    store = Store()
    folders = {name: store.add(name).folder for name in (MODEL, RERANKER)}
    bars = Bars()

    starts = [
        seconds_to_first_vector_here(store.home) / seconds_to_first_vector_there(folders[MODEL]) for _ in range(3)
    ]
    bars.check("process start → first vector ÷ sentence-transformers'", statistics.median(starts), "≤", 0.4)

    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(folders[MODEL]), device="cpu")
    texts = texts_of(short, 4000, seed=1)
    with serving(store.home, "--pin", MODEL, "--pin", RERANKER) as server:
        check_vectors(bars, reference, server.port)
        check_scores(bars, folders[RERANKER], server.port)
        target, requests = Target("127.0.0.1", server.port), [request(text) for text in texts]
        medians: dict[int, tuple[float, float]] = {}
        for connections in CONNECTIONS:
            rates, waits = [], []
            for _ in range(arguments.pairs):
                ours = closed(target, requests, connections, arguments.seconds)
                if ours.errors:
                    raise RuntimeError(f"{ours.errors}: {ours.complaint}")
                rate, wait = in_process(reference, texts, connections, arguments.seconds)
                rates.append(ours.per_second / rate)
                waits.append(ours.percentile(0.5) / wait)
            medians[connections] = statistics.median(rates), statistics.median(waits)
            print(
                f"        {connections:3} connections: {ours.per_second:.0f} texts/s, p50 "
                f"{ours.percentile(0.5) * 1e3:.1f} ms, p99 {ours.percentile(0.99) * 1e3:.1f} ms; in process, "
                f"{connections} texts a call: {rate:.0f} texts/s, {wait * 1e3:.1f} ms (last pair)",
                flush=True,
            )
    bars.check("p50 of one short text ÷ sentence-transformers'", medians[1][1], "≤", 1.0)
    bars.check("texts/s at 128 connections ÷ sentence-transformers'", medians[128][0], "≥", 1.5)
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
