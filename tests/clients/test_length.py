"""How long a text may be: one policy on every route, said, counted, and exact at its edge."""

from pathlib import Path

import pytest
from asking import ENCODERS, SCORERS, cosines, embed_string

from names import MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models]

MINILM_LIMIT = 256
MINILM_ROOM = MINILM_LIMIT - 2
"""Tokens beside the two markers of a text."""
RERANKER_LIMIT = 512


def room_beside(query: str) -> int:
    """Tokens for a document beside a query of one-token words and the three markers of a pair."""
    return RERANKER_LIMIT - 3 - len(query.split())


@pytest.mark.parametrize("route", ENCODERS)
def test_a_text_is_cut_at_its_end_unless_told_otherwise_and_that_is_said(http, words, route):
    ask, long = ENCODERS[route], words[:400]
    kept = ask(http, " ".join(long[:MINILM_ROOM]))
    for said in (ask(http, " ".join(long)), ask(http, " ".join(long), truncate="end")):
        assert cosines(said.value, kept.value) >= 0.9999
        assert (said.tokens, said.truncated, said.header) == (MINILM_LIMIT, 1, 1)
    assert (kept.tokens, kept.truncated, kept.header) == (MINILM_LIMIT, 0, 0)


@pytest.mark.parametrize("route", ENCODERS)
def test_a_text_is_cut_at_its_start_on_request(http, words, route):
    ask, long = ENCODERS[route], words[:400]
    said = ask(http, " ".join(long), truncate="start")
    assert cosines(said.value, ask(http, " ".join(long[-MINILM_ROOM:])).value) >= 0.9999
    assert cosines(said.value, ask(http, " ".join(long[:MINILM_ROOM])).value) < 0.99
    assert (said.tokens, said.truncated, said.header) == (MINILM_LIMIT, 1, 1)


@pytest.mark.parametrize("route", ENCODERS)
def test_the_advertised_limit_of_a_text_is_the_effective_one(http, words, route):
    ask = ENCODERS[route]
    assert http.get(f"/v1/models/{MINILM}").json()["max_sequence_length"] == MINILM_LIMIT
    for room, cut in ((MINILM_ROOM - 1, 0), (MINILM_ROOM, 0), (MINILM_ROOM + 1, 1)):
        said = ask(http, " ".join(words[:room]))
        assert (said.tokens, said.truncated, said.header) == (min(room + 2, MINILM_LIMIT), cut, cut)
        strict = ask(http, " ".join(words[:room]), truncate="error")
        assert strict.status == (413 if cut else 200)
    assert (strict.error["code"], strict.error["limit"], strict.error["seen"]) == ("INPUT_TOO_LONG", 256, 257)
    assert all(word in strict.error["message"] for word in ("256", "257", "truncate"))


@pytest.mark.parametrize("route", SCORERS)
def test_a_document_is_cut_at_its_end_or_at_its_start_on_request(http, words, route):
    ask, query, long = SCORERS[route], " ".join(words[-3:]), words[:900]
    room = room_beside(query)
    first, last = ask(http, query, " ".join(long[:room])), ask(http, query, " ".join(long[-room:]))
    assert abs(first.value - last.value) > 0.01
    for more, kept in (({}, first), ({"truncate": "end"}, first), ({"truncate": "start"}, last)):
        said = ask(http, query, " ".join(long), **more)
        assert abs(said.value - kept.value) <= 1e-3
        assert (said.tokens, said.truncated, said.header) == (RERANKER_LIMIT, 1, 1)
    assert (first.tokens, first.truncated, first.header) == (RERANKER_LIMIT, 0, 0)


@pytest.mark.parametrize("route", SCORERS)
def test_the_advertised_limit_of_a_pair_is_the_effective_one(http, words, route):
    ask, query = SCORERS[route], words[7]
    assert http.get(f"/v1/models/{RERANKER}").json()["max_sequence_length"] == RERANKER_LIMIT
    for room, cut in ((room_beside(query) + d, int(d > 0)) for d in (-1, 0, 1)):
        said = ask(http, query, " ".join(words[:room]))
        assert (said.tokens, said.truncated) == (min(room + 4, RERANKER_LIMIT), cut)
        strict = ask(http, query, " ".join(words[:room]), truncate="error")
        assert strict.status == (413 if cut else 200)
    assert (strict.error["code"], strict.error["limit"], strict.error["seen"]) == ("INPUT_TOO_LONG", 512, 513)


@pytest.mark.parametrize("route", ["native json", "native msgpack", "openai string", "openai list base64"])
def test_an_unknown_policy_is_refused(http, route):
    said = ENCODERS[route](http, "a", truncate="middle")
    assert (said.status, said.error["code"]) == (400, "INVALID_INPUT")
    assert "middle" in said.error["message"]


def test_token_ids_are_cut_as_a_text_is(http):
    ids = list(range(2000, 2400))
    said = embed_string(http, ids)
    assert cosines(said.value, embed_string(http, ids[:MINILM_ROOM]).value) >= 0.9999
    assert (said.tokens, said.truncated, said.header) == (MINILM_LIMIT, 1, 1)
    assert embed_string(http, ids, truncate="error").error["seen"] == 402


def test_of_many_texts_each_is_cut_for_itself_and_the_sum_is_counted(http, words, tokens_of):
    texts = [" ".join(words[:n]) for n in (3, 300, 10, 1000, 1)]
    body = {"items": texts}
    answer = http.post(f"/v1/encode/{MINILM}", json=body)
    counted = sum(min(tokens_of(MINILM, text), MINILM_LIMIT) for text in texts)
    assert answer.json()["usage"] == {"input_tokens": counted, "truncated": 2}
    assert answer.headers["x-shoal-truncated"] == "2"
    assert answer.headers["x-sie-units-input-tokens"] == str(counted)


def test_usage_counts_the_tokens_of_real_texts_and_pairs(http, tokens_of):
    texts = ["Der Antrag wird geprüft.", "🐟🐟", "naïve café", "x" * 300, "a  \n b\t"]
    answer = http.post("/v1/embeddings", json={"model": MINILM, "input": texts}).json()
    assert answer["usage"]["prompt_tokens"] == sum(tokens_of(MINILM, text) for text in texts)
    answer = http.post("/v1/rerank", json={"model": RERANKER, "query": texts[0], "documents": texts}).json()
    assert answer["usage"]["total_tokens"] == sum(tokens_of(RERANKER, texts[0], text) for text in texts)


@pytest.mark.parametrize("query", ["short query", "query " * 100_000])
def test_a_pair_of_a_hundred_thousand_tokens_is_cut_or_refused_and_the_server_lives(http, server, query):
    before, document = server.runtime_pids(), "document " * 100_000
    peak = most_memory(server)
    for ask in SCORERS.values():
        said = ask(http, query, document)
        assert (said.status, said.tokens, said.truncated) == (200, RERANKER_LIMIT, 1)
        strict = ask(http, query, document, truncate="error")
        assert (strict.status, strict.error["code"], strict.error["limit"]) == (413, "INPUT_TOO_LONG", 512)
    assert server.runtime_pids() == before
    assert most_memory(server) - peak < 256e6


def most_memory(server) -> int:
    """The greatest memory that any runtime of the server ever had, in bytes."""
    return max(peak_of(pid) for pid in server.runtime_pids())


def peak_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
