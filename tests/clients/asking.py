"""One question put to each route in that route's own words, and its answer in the same few words.

`ENCODERS` and `SCORERS` are the ways to ask for one vector or one score over plain HTTP: what holds for one of
them has to hold for all. Shared by the tests of this folder.
"""

import base64
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np

from names import MINILM, RERANKER


class Said(NamedTuple):
    """`value` is a vector or a score; `truncated` is what usage says, `header` what the header says."""

    status: int
    value: Any = None
    tokens: int = 0
    truncated: int = 0
    header: int = 0
    error: Any = None


def said(response: httpx.Response, value: Any) -> Said:
    """`value` reads the answer's body, and the body of a refusal is read here."""
    body = body_of(response)
    if response.status_code != 200:
        # TEI's `error` is the message; the facts stand beside it.
        error = body if "error_type" in body else body.get("error") or body["detail"]
        return Said(response.status_code, error=error)
    cut = int(response.headers.get("x-shoal-truncated", 0))
    if isinstance(body, list):  # TEI's answers have no place for usage, its headers do
        return Said(200, value(body), int(response.headers["x-compute-tokens"]), cut, cut)
    usage = body["usage"] if "usage" in body else body["meta"]["billed_units"]
    tokens = usage.get("input_tokens", usage.get("total_tokens"))
    return Said(200, value(body), tokens, usage.get("truncated", cut), cut)


def body_of(response: httpx.Response) -> dict[Any, Any]:
    packed = "msgpack" in response.headers["content-type"]
    return msgspec.msgpack.decode(response.content) if packed else response.json()


def array(packed: dict[Any, Any]) -> np.ndarray:
    return np.frombuffer(packed[b"data"], packed[b"type"]).reshape(packed[b"shape"])


def encode_json(http: httpx.Client, text: str, model: str = MINILM, **options: Any) -> Said:
    body = {"items": [text], "params": {"options": options}}
    return said(http.post(f"/v1/encode/{model}", json=body), lambda b: np.array(b["items"][0]["dense"]["values"]))


def encode_msgpack(http: httpx.Client, text: str, model: str = MINILM, **options: Any) -> Said:
    body = {"items": [{"text": text, "id": "one"}], "params": {"options": options}}
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    answer = http.post(f"/v1/encode/{model}", content=msgspec.msgpack.encode(body), headers=headers)
    return said(answer, lambda b: array(b["items"][0]["dense"]["values"]))


def embed_string(http: httpx.Client, text: Any, model: str = MINILM, **fields: Any) -> Said:
    answer = http.post("/v1/embeddings", json={"model": model, "input": text} | fields)
    return said(answer, lambda b: np.array(b["data"][0]["embedding"]))


def embed_list(http: httpx.Client, text: str, model: str = MINILM, **fields: Any) -> Said:
    fields = {"encoding_format": "base64"} | fields
    answer = http.post("/v1/embeddings", json={"model": model, "input": [text]} | fields)
    return said(answer, lambda b: np.frombuffer(base64.b64decode(b["data"][0]["embedding"]), "<f4"))


def embed_cohere(http: httpx.Client, text: str, model: str = MINILM, truncate: str = "end", **fields: Any) -> Said:
    fields["truncate"] = {"end": "END", "start": "START", "error": "NONE"}[truncate]
    answer = http.post("/v2/embed", json={"model": model, "texts": [text]} | fields)
    return said(answer, lambda b: np.array(b["embeddings"]["float"][0]))


def embed_tei(http: httpx.Client, text: str, model: str = MINILM, truncate: str = "end", **fields: Any) -> Said:
    answer = http.post("/embed", json={"model": model, "inputs": text} | fields | tei_cut(truncate))
    return said(answer, lambda b: np.array(b[0]))


def tei_cut(truncate: str) -> dict[str, Any]:
    return {"truncate": truncate != "error", "truncation_direction": "Left" if truncate == "start" else "Right"}


def score_string(http: httpx.Client, query: str, document: str, **options: Any) -> Said:
    body = {"query": query, "items": [document], "options": {"raw": True} | options}
    return said(http.post(f"/v1/score/{RERANKER}", json=body), lambda b: b["scores"][0]["score"])


def score_item(http: httpx.Client, query: str, document: str, **options: Any) -> Said:
    body = {"query": {"text": query}, "items": [{"text": document}], "options": {"raw": True} | options}
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    answer = http.post(f"/v1/score/{RERANKER}", content=msgspec.msgpack.encode(body), headers=headers)
    return said(answer, lambda b: b["scores"][0]["score"])


def rerank(path: str, http: httpx.Client, query: str, document: Any, **fields: Any) -> Said:
    body = {"model": RERANKER, "query": query, "documents": [document], "raw_scores": True} | fields
    return said(http.post(path, json=body), lambda b: b["results"][0]["relevance_score"])


def rerank_tei(http: httpx.Client, query: str, text: str, truncate: str = "end", **fields: Any) -> Said:
    body = {"model": RERANKER, "query": query, "texts": [text], "raw_scores": True} | fields | tei_cut(truncate)
    return said(http.post("/rerank", json=body), lambda b: b[0]["score"])


ENCODERS = {
    "native json": encode_json,
    "native msgpack": encode_msgpack,
    "openai string": embed_string,
    "openai list base64": embed_list,
    "cohere embed": embed_cohere,
    "tei embed": embed_tei,
}
SCORERS = {
    "native json": score_string,
    "native msgpack": score_item,
    "cohere v1": lambda *asked, **more: rerank("/v1/rerank", *asked, **more),
    "cohere v2": lambda *asked, **more: rerank("/v2/rerank", *asked, **more),
    "jina, a text object": lambda http, query, text, **more: rerank(
        "/rerank", http, query, {"text": text}, **more
    ),
    "tei rerank": rerank_tei,
}


def cosines(one: Any, other: Any) -> np.ndarray:
    """Of the rows of two arrays [n, dims], or of two vectors."""
    a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def sentences(count: int) -> list[str]:
    """Different texts of one to a few dozen words."""
    words = [
        "river",
        "stone",
        "harvest",
        "quiet",
        "engine",
        "paper",
        "lantern",
        "winter",
        "garden",
        "signal",
        "copper",
        "meadow",
    ]
    return [
        " ".join([f"number {i}", *(words[(i * 7 + k * (i % 5 + 1)) % 12] for k in range(i * i % 37))])
        for i in range(count)
    ]
