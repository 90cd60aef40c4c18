"""Models with declared prompts put them before a text by is_query, input_type or name, on every route."""

import numpy as np
import pytest
from asking import ENCODERS, cosines

from names import BGE, MINILM

pytestmark = [pytest.mark.clients, pytest.mark.models]

TEXT = "how are building permits granted"
NATIVE, OPENAI = ("native json", "native msgpack"), ("openai string", "openai list base64")


@pytest.fixture
def prompt(http) -> str:
    prompts = http.get(f"/v1/models/{BGE}").json()["prompts"]
    assert list(prompts) == ["query"]
    return prompts["query"]


def vector(http, route: str, text: str = TEXT, model: str = BGE, **asked) -> np.ndarray:
    said = ENCODERS[route](http, text, model=model, **asked)
    assert said.status == 200, said.error
    return said.value


@pytest.mark.parametrize(
    ("route", "asked"),
    [(route, asked) for route in NATIVE for asked in ({"is_query": True}, {"prompt_name": "query"})]
    + [(route, asked) for route in OPENAI for asked in ({"input_type": "query"}, {"prompt_name": "query"})]
    + [("cohere embed", asked) for asked in ({"input_type": "search_query"}, {"prompt_name": "query"})]
    + [("tei embed", {"prompt_name": "query"})],
)
def test_the_query_prompt_is_the_text_with_the_prompt_before_it(http, prompt, route, asked):
    prompted = vector(http, route, **asked)
    assert cosines(prompted, vector(http, route, text=prompt + TEXT)) >= 0.9999
    assert cosines(prompted, vector(http, route)) < 0.99


@pytest.mark.parametrize(
    ("route", "asked"),
    [(route, {"is_query": False}) for route in NATIVE]
    + [(route, {"input_type": kind}) for route in OPENAI for kind in ("document", "passage")]
    + [("cohere embed", {"input_type": kind}) for kind in ("search_document", "classification", "clustering")],
)
def test_what_is_searched_has_no_prompt_here(http, route, asked):
    assert cosines(vector(http, route, **asked), vector(http, route)) >= 0.9999


@pytest.mark.parametrize("route", NATIVE)
def test_an_instruction_is_put_before_the_text_as_it_is(http, prompt, route):
    given = vector(http, route, instruction="Find: ")
    assert cosines(given, vector(http, route, text="Find: " + TEXT)) >= 0.9999
    assert cosines(vector(http, route, instruction=prompt), vector(http, route, is_query=True)) >= 0.9999


@pytest.mark.parametrize("route", ENCODERS)
def test_an_unknown_prompt_is_an_error_that_lists_the_known_ones(http, route):
    said = ENCODERS[route](http, TEXT, model=BGE, prompt_name="no-such")
    # TEI has 413 for whatever it finds wrong with a body.
    assert said.status == (413 if route == "tei embed" else 400)
    assert (said.error["code"], said.error["param"]) == ("INVALID_INPUT", "prompt_name")
    assert "no-such" in said.error["message"]
    assert said.error["prompts"] == ["query"]


@pytest.mark.parametrize(("path", "key"), [("/v1/rerank", "documents"), ("/rerank", "texts")])
def test_an_unknown_prompt_is_an_error_of_a_reranker_too(http, path, key):
    answer = http.post(path, json={"query": TEXT, key: [TEXT], "prompt_name": "no-such"})
    assert answer.status_code == (413 if key == "texts" else 400)
    assert "no prompt named 'no-such'" in answer.json()["message"]


@pytest.mark.parametrize("route", [*NATIVE, *OPENAI])
def test_a_model_without_prompts_has_none_by_name_and_needs_none_for_a_query(http, route):
    assert ENCODERS[route](http, TEXT, prompt_name="query").status == 400
    asked = {"is_query": True} if route in NATIVE else {"input_type": "query"}
    assert cosines(vector(http, route, model=MINILM, **asked), vector(http, route, model=MINILM)) >= 0.9999


def test_a_prompt_before_token_ids_is_refused(http):
    body = {"model": BGE, "input": [[2129, 2024]], "input_type": "query"}
    answer = http.post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    assert "token ids" in answer.json()["error"]["message"]
