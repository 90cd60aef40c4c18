"""What the road does to retrieval: the same texts through a running server and through the reference."""

import httpx
import numpy as np
import pytest
from artifact import Artifact
from faq import ndcg_at_10

import shoal
from names import BGE, MINILM
from shoal.catalog.store import Store
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.runtimes import Runtime, open_runtime

pytestmark = pytest.mark.models


def test_retrieval_through_the_server_is_as_good_as_the_reference_in_process(home, server, faq):
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(Store(home).resolve(MINILM).folder), device="cpu")
    expected = [reference.encode(texts, batch_size=32, normalize_embeddings=True) for texts in faq]
    with shoal.Client(server.url) as client:
        served = [client.encode(MINILM, texts) for texts in faq]
    cosines = [(a * b).sum(axis=1) for a, b in zip(served, expected, strict=True)]
    assert np.concatenate(cosines).min() >= 0.9999
    assert ndcg_at_10(*expected) > 0.70
    assert abs(ndcg_at_10(*served) - ndcg_at_10(*expected)) <= 0.005


def test_the_int8_model_with_its_query_prompt_retrieves_as_well_as_its_artifact_run_alone(bge, server, faq):
    questions, answers = faq
    artifact = Artifact(bge.folder, bge.facts.max_tokens)
    prompted = [bge.facts.prompts["query"] + question for question in questions]
    alone = [np.stack([artifact.first_token(text) for text in texts]) for texts in (prompted, answers)]
    with shoal.Client(server.url) as client:
        served = [client.encode(BGE, questions, is_query=True), client.encode(BGE, answers)]
    assert abs(ndcg_at_10(*alone) - 0.716) <= 0.005
    assert abs(ndcg_at_10(*served) - ndcg_at_10(*alone)) <= 0.005


def test_8_bit_weights_are_as_near_to_fp32_as_the_listing_says_and_retrieve_as_well(home, server, faq):
    model = Store(home).resolve(f"{MINILM}:int8")
    exact = open_runtime(model.folder, model.facts, Profile(runtime="openvino"))
    expected = [vectors(exact, texts) for texts in faq]
    with shoal.Client(server.url) as client:
        served = [client.encode(model.name, texts) for texts in faq]
    of_itself = httpx.get(f"{server.url}/v1/models/{model.name}").json()
    of_the_base = httpx.get(f"{server.url}/v1/models").json()["data"][0]
    assert (of_itself["dtype"], of_the_base["name"]) == ("int8", MINILM)
    assert of_itself["tolerance"] == of_the_base["variants"]["int8"]["tolerance"]
    cosines = np.concatenate([(a * b).sum(axis=1) for a, b in zip(served, expected, strict=True)])
    assert of_itself["tolerance"] <= cosines.min() < 0.9999
    assert cosines.mean() >= 0.999
    assert abs(ndcg_at_10(*served) - ndcg_at_10(*expected)) <= 0.005


def vectors(runtime: Runtime, texts: list[str]) -> np.ndarray:
    parts = [runtime.prepare([Item(text) for text in texts[start : start + 32]]) for start in range(0, 503, 32)]
    return np.stack([row["dense"] for part in parts for row in runtime.run(part, 0).rows])
