"""Other people's clients name a LoRA adapter as they name a model, or beside its base, and get its numbers."""

from pathlib import Path

import cohere
import httpx
import numpy as np
import openai
import pytest
import sie_sdk
from asking import cosines
from sie_sdk.client.errors import RequestError

import shoal
from names import MINILM
from shoal.catalog.store import Store
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import tiny_reranker
from shoal.testing.server import serving

pytestmark = [pytest.mark.clients, pytest.mark.models, pytest.mark.usefixtures("impatient_sdk")]

BASE, LORA, OTHER, JUDGE, STRICT = "org/base", "team/contracts", "team/other", "org/judge", "team/strict"
TEXTS = ["a quiet harbour", "the tenant may terminate with three months' notice"]


@pytest.fixture(scope="module")
def adapted(home, tmp_path_factory):
    """A server with an encoder and two adapters of it, a reranker and an adapter of that."""
    scratch: Path = tmp_path_factory.mktemp("adapted")
    store, encoder, reranker = Store(scratch / "home"), Store(home).resolve(MINILM).folder, scratch / "judge"
    tiny_reranker(reranker)
    store.add(encoder, name=BASE)
    store.add(reranker, name=JUDGE)
    for seed, name in enumerate((LORA, OTHER)):
        store.add(write_adapter(scratch / name, encoder, seed=seed), name=name, base=BASE)
    store.add(write_adapter(scratch / STRICT, reranker), name=STRICT, base=JUDGE)
    with serving(store.home, "--pin", BASE) as running:
        yield running


@pytest.fixture
def sdk(adapted):
    with sie_sdk.SIEClient(adapted.url, timeout_s=60, api_key="") as client:
        yield client


@pytest.fixture
def rows(adapted):
    """What each of the models makes of the texts, by our own client."""
    with shoal.Client(adapted.url, timeout_s=60) as client:
        found = {name: client.encode(name, TEXTS) for name in (BASE, LORA, OTHER)}
    assert cosines(found[BASE], found[LORA]).max() < 0.99
    assert cosines(found[OTHER], found[LORA]).max() < 0.99
    return found


def dense(results) -> np.ndarray:
    return np.stack([result["dense"] for result in results])


@pytest.mark.parametrize("option", ["lora_id", "lora"])
def test_sie_sdk_names_an_adapter_beside_its_base_or_as_the_model(sdk, rows, option):
    items = [{"text": text} for text in TEXTS]
    beside = dense(sdk.encode(BASE, items, options={option: LORA}))
    assert cosines(beside, rows[LORA]).min() > 0.999
    assert cosines(dense(sdk.encode(LORA, items)), rows[LORA]).min() > 0.999
    assert cosines(dense(sdk.encode(BASE, items)), rows[BASE]).min() > 0.999
    assert sdk.encode(BASE, items, options={option: LORA})[0]["model"] == BASE


@pytest.mark.parametrize(
    ("model", "adapter", "status", "code", "words"),
    [
        (BASE, "team/unknown", 404, "MODEL_NOT_FOUND", "no adapter named 'team/unknown' of org/base"),
        (BASE, STRICT, 400, "INVALID_INPUT", "an adapter of org/judge, not of org/base"),
        (BASE, JUDGE, 400, "INVALID_INPUT", "no adapter"),
        ("team/unknown", "", 404, "MODEL_NOT_FOUND", "team/unknown"),
    ],
)
def test_sie_sdk_is_told_of_an_adapter_that_is_not_there_and_does_not_try_again(
    sdk, model, adapter, status, code, words
):
    with pytest.raises(RequestError, match=words) as refused:
        sdk.encode(model, {"text": "a"}, options={"lora_id": adapter} if adapter else None)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert sdk.last_retry_count == 0


def test_sie_sdk_scores_with_an_adapter(sdk):
    query, items = (
        {"text": "When do boats leave?"},
        [{"text": "Boats leave at dawn."}, {"text": "Bread is baked."}],
    )

    def scores(model: str, **more) -> dict[str, float]:
        return {entry["item_id"]: entry["score"] for entry in sdk.score(model, query, items, **more)["scores"]}

    assert scores(STRICT) == pytest.approx(scores(JUDGE, options={"lora_id": STRICT}), abs=1e-3)
    assert scores(STRICT) != pytest.approx(scores(JUDGE), abs=1e-3)


def test_openais_client_names_an_adapter_as_the_model_and_finds_it_in_the_list(adapted, rows):
    with openai.OpenAI(base_url=f"{adapted.url}/v1", api_key="none", timeout=60) as client:
        for name in (LORA, BASE):
            answer = client.embeddings.create(model=name, input=TEXTS)
            assert answer.model == name
            assert cosines(np.array([entry.embedding for entry in answer.data]), rows[name]).min() > 0.999
        listed = {model.id: model.base for model in client.models.list()}
        assert listed == {BASE: None, LORA: BASE, OTHER: BASE, JUDGE: None, STRICT: JUDGE}
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="team/unknown", input=TEXTS)


def test_coheres_client_reranks_with_an_adapter(adapted):
    documents = ["Bread is baked at six.", "Boats leave at dawn."]
    with cohere.ClientV2(api_key="none", base_url=adapted.url, timeout=60) as client:
        answers = {
            name: client.rerank(model=name, query="When do boats leave?", documents=documents)
            for name in (JUDGE, STRICT)
        }
    found = {name: {r.index: r.relevance_score for r in answer.results} for name, answer in answers.items()}
    assert found[JUDGE].keys() == found[STRICT].keys()
    assert found[JUDGE] != pytest.approx(found[STRICT], abs=1e-4)


def test_a_request_that_names_no_model_is_answered_by_a_base_and_never_by_an_adapter(adapted, rows):
    answer = httpx.post(f"{adapted.url}/embed", json={"inputs": TEXTS}, timeout=60)
    assert cosines(np.array(answer.json()), rows[BASE]).min() > 0.999
    assert httpx.get(f"{adapted.url}/info").json()["model_id"] == BASE
