"""OpenAI's own client, blocking and asynchronous, on /v1/embeddings and /v1/models."""

import asyncio
import base64

import numpy as np
import openai
import pytest
import pytest_asyncio
from asking import cosines, sentences
from tokenizers import Tokenizer

from names import BGE, MINILM, RERANKER
from shoal.catalog.store import Store

pytestmark = [pytest.mark.clients, pytest.mark.models]

TEXTS = ["a quiet harbour", "the engine would not start", "meadow"]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=60, max_retries=0) as client:
        yield client


@pytest_asyncio.fixture
async def asynchronous(server):
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=60, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def token_ids(home):
    """Of a text, without markers, as a caller who tokenises for himself has them."""
    tokenizer = Tokenizer.from_file(str(Store(home).resolve(MINILM).folder / "tokenizer.json"))
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def vectors(answer) -> np.ndarray:
    assert [row.index for row in answer.data] == list(range(len(answer.data)))
    return np.array([row.embedding for row in answer.data])


def test_a_string_is_one_text_and_its_vector_is_that_of_the_native_route(client, ours, tokens_of):
    answer = client.embeddings.create(model=MINILM, input=TEXTS[0])
    assert (answer.object, answer.model, len(answer.data)) == ("list", MINILM, 1)
    assert cosines(vectors(answer)[0], ours.encode(MINILM, TEXTS[0])) >= 0.9999
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens_of(MINILM, TEXTS[0])


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_a_list_gives_a_vector_each_in_order_in_every_encoding(client, ours, tokens_of, encoding):
    more = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(model=MINILM, input=TEXTS, **more)
    if encoding == "base64":  # asked for by name, it is left as it came
        rows = [np.frombuffer(base64.b64decode(row.embedding, validate=True), "<f4") for row in answer.data]
    else:
        rows = vectors(answer)
    assert np.shape(rows) == (3, 384)
    assert cosines(rows, ours.encode(MINILM, TEXTS)).min() >= 0.9999
    assert answer.usage.total_tokens == sum(tokens_of(MINILM, text) for text in TEXTS)


def test_token_ids_alone_or_in_lists_are_the_text_they_were_made_from(client, ours, token_ids, tokens_of):
    one = client.embeddings.create(model=MINILM, input=token_ids(TEXTS[1]))
    many = client.embeddings.create(model=MINILM, input=[token_ids(text) for text in TEXTS])
    expected = ours.encode(MINILM, TEXTS)
    assert cosines(vectors(one)[0], expected[1]) >= 0.9999
    assert cosines(vectors(many), expected).min() >= 0.9999
    assert one.usage.total_tokens == tokens_of(MINILM, TEXTS[1])
    assert many.usage.total_tokens == sum(tokens_of(MINILM, text) for text in TEXTS)


def test_the_most_inputs_that_the_api_allows_are_answered_and_one_more_is_refused(client):
    answer = client.embeddings.create(model=MINILM, input=["a", "b"] * 1024)
    assert len(answer.data) == 2048
    assert cosines(vectors(answer)[::2], vectors(answer)[0]).min() >= 0.9999
    with pytest.raises(openai.BadRequestError, match=r"2049 .* 2048 .*--max-items"):
        client.embeddings.create(model=MINILM, input=["a"] * 2049)


@pytest.mark.parametrize(
    ("asked", "error", "param", "words"),
    [
        ({"input": ""}, openai.BadRequestError, "input", "empty"),
        ({"input": ["one", "", "two"]}, openai.BadRequestError, "input[1]", "empty"),
        ({"input": [[101], []]}, openai.BadRequestError, "input[1]", "empty"),
        ({"input": []}, openai.BadRequestError, "input", "empty"),
        ({"input": [[5, 99_999_999]]}, openai.BadRequestError, "input[0]", "30521"),
        ({"input": "a", "dimensions": 128}, openai.BadRequestError, "dimensions", "384"),
        ({"input": "a", "model": "no/such"}, openai.NotFoundError, "model", "no/such"),
        ({"input": "a", "model": RERANKER}, openai.BadRequestError, "model", "cannot encode"),
        ({"input": "a", "extra_body": {"prompt_name": "no"}}, openai.BadRequestError, "prompt_name", "no prompt"),
        ({"input": "a", "extra_body": {"truncate": "no"}}, openai.BadRequestError, "truncate", "truncate"),
    ],
)
def test_what_is_refused_says_which_parameter_was_wrong(client, asked, error, param, words):
    with pytest.raises(error, match=words) as refused:
        client.embeddings.create(**{"model": MINILM} | asked)
    assert (refused.value.type, refused.value.param) == ("invalid_request_error", param)
    assert refused.value.code


def test_the_full_width_may_be_asked_for_by_number(client, ours):
    answer = client.embeddings.create(model=MINILM, input="a", dimensions=384, user="somebody")
    assert cosines(vectors(answer)[0], ours.encode(MINILM, "a")) >= 0.9999


def test_a_models_prompt_is_chosen_by_input_type_or_by_name(client, ours):
    def ask(**body: str) -> np.ndarray:
        return vectors(client.embeddings.create(model=BGE, input="permits", extra_body=body))[0]

    query, document = ours.encode(BGE, "permits", is_query=True), ours.encode(BGE, "permits")
    assert cosines(ask(input_type="query"), query) >= 0.9999
    assert cosines(ask(prompt_name="query"), query) >= 0.9999
    assert cosines(ask(input_type="document"), document) >= 0.9999
    assert cosines(ask(), document) >= 0.9999


def test_models_are_listed_and_found_by_a_name_with_a_slash(client):
    listed = {model.id: model for model in client.models.list()}
    assert {MINILM, RERANKER, BGE} <= listed.keys()
    found = client.models.retrieve(MINILM)
    assert (found.id, found.object, found.owned_by) == (MINILM, "model", "sentence-transformers")
    assert found == listed[MINILM]
    with pytest.raises(openai.NotFoundError, match="no/such"):
        client.models.retrieve("no/such")


async def test_the_asynchronous_client_gets_the_same_with_many_calls_at_once(asynchronous, ours):
    texts = sentences(64)
    answers = await asyncio.gather(*(asynchronous.embeddings.create(model=MINILM, input=t) for t in texts))
    rows = np.concatenate([vectors(answer) for answer in answers])
    assert cosines(rows, ours.encode(MINILM, texts)).min() >= 0.9999
    assert MINILM in [model.id async for model in asynchronous.models.list()]
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]"):
        await asynchronous.embeddings.create(model=MINILM, input=["a", ""])
