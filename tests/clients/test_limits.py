"""Every refusal because of a limit names the limit, the size seen and the setting that changes it."""

import httpx
import pytest
from asking import cosines, sentences

from names import MINILM, RERANKER

pytestmark = [pytest.mark.clients, pytest.mark.models]

BODY_LIMIT = 32 * 1024 * 1024


@pytest.mark.parametrize(
    ("path", "body", "status", "limit", "seen", "setting"),
    [
        (f"/v1/encode/{MINILM}", {"items": ["a"] * 10_001}, 413, 10_000, 10_001, "--max-items"),
        (f"/v1/score/{RERANKER}", {"query": "a", "items": ["a"] * 1001}, 400, 1000, 1001, "--max-items"),
        ("/v1/embeddings", {"model": MINILM, "input": ["a"] * 2049}, 400, 2048, 2049, "--max-items"),
        ("/v1/rerank", {"query": "a", "documents": ["a"] * 10_001}, 413, 10_000, 10_001, "--max-items"),
        (
            "/v1/embeddings",
            {"model": MINILM, "input": "a" * BODY_LIMIT},
            413,
            BODY_LIMIT,
            None,
            "--max-body-bytes",
        ),
        ("/v1/embeddings", {"input": "a b " * 200, "truncate": "error"}, 413, 256, 402, "truncate"),
        ("/v1/rerank", {"query": "a", "documents": ["a " * 600], "truncate": "error"}, 413, 512, 604, "truncate"),
    ],
)
def test_a_request_over_a_limit_is_told_which(http, path, body, status, limit, seen, setting):
    answer = http.post(path, json=body)
    assert answer.status_code == status
    error = answer.json().get("error") or answer.json()["detail"]
    seen = seen or int(answer.request.headers["content-length"])
    assert (error["limit"], error["seen"]) == (limit, seen)
    assert setting in error["setting"]
    assert all(str(fact) in error["message"] for fact in (limit, seen, error["setting"]))


def test_a_body_of_unsaid_length_is_stopped_at_the_limit(http):
    pieces = (b"x" * (1 << 20) for _ in range(40))
    answer = http.post("/v1/embeddings", content=pieces, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["error"]["setting"] == "--max-body-bytes"


@pytest.mark.parametrize("value", ["600001", "0", "-1", "soon", "1.5", "9" * 30])
def test_a_time_limit_that_cannot_be_kept_is_refused(http, value):
    answer = http.post("/v1/embeddings", json={"input": "a"}, headers={"x-shoal-timeout-ms": value})
    assert answer.status_code == 400
    assert "X-Shoal-Timeout-Ms" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/embedding", "/nowhere", "/v1/models/no/such", "/v1/encode/"])
def test_a_path_that_leads_nowhere_says_so_in_every_clients_shape(http, path):
    answer = http.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == answer.json()["detail"]["message"]


@pytest.mark.parametrize("path", ["/v1/embeddings", f"/v1/encode/{MINILM}", "/v1/rerank"])
def test_what_curl_calls_a_form_is_refused_by_that_name(http, path):
    form = "application/x-www-form-urlencoded"
    body = '{"input": "a", "items": ["a"], "query": "a", "documents": ["a"]}'
    answer = http.post(path, content=body, headers={"content-type": form})
    assert answer.status_code == 415
    assert form in answer.text
    assert "application/json" in answer.text


def test_a_thousand_texts_in_one_request_work_on_every_route_and_keep_their_order(http, ours):
    texts = sentences(1000)
    expected = ours.encode(MINILM, texts)
    native = http.post(f"/v1/encode/{MINILM}", json={"items": texts}).json()["items"]
    assert cosines([item["dense"]["values"] for item in native], expected).min() >= 0.9999
    foreign = http.post("/v1/embeddings", json={"model": MINILM, "input": texts}).json()["data"]
    assert [row["index"] for row in foreign] == list(range(1000))
    assert cosines([row["embedding"] for row in foreign], expected).min() >= 0.9999


def test_a_name_with_its_slash_written_as_two_underscores_is_the_same_model(http):
    name = MINILM.replace("/", "__")
    assert http.post(f"/v1/encode/{name}", json={"items": ["a"]}).json()["model"] == MINILM
    assert http.get(f"/v1/models/{name}").json()["name"] == MINILM
    assert http.post("/v1/embeddings", json={"model": name, "input": "a"}).json()["model"] == MINILM


def test_curl_without_any_header_of_ours_is_answered(server):
    answer = httpx.request("POST", f"{server.url}/v1/embeddings", content=b'{"input": "a"}', timeout=60)
    assert (answer.status_code, answer.json()["model"]) == (200, MINILM)
