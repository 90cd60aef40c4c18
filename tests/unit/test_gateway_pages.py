"""What the pages for other people's probes say, of stores with stand-ins in them."""

import msgspec
import pytest

from names import VIRTUAL_EVERY_KIND, VIRTUAL_LABELS, VIRTUAL_RERANKER
from shoal.catalog.store import Store
from shoal.gateway.overview import MOST_LISTED
from shoal.gateway.pages import Pages
from shoal.protocol.errors import ModelNotFound
from shoal.protocol.status import ModelStatus
from shoal.queue import Limits
from shoal.queue.inprocess import InProcessQueue


@pytest.fixture
def ask(tmp_path):
    """The status and body of a page of a server with these models."""

    async def ask(path: str, *models: str, ready: bool = True, loaded: tuple[str, ...] = (), known: int = 0):
        store = Store(tmp_path)
        for number in range(known):
            store.add(VIRTUAL_RERANKER, name=f"team/m{number:03}")
        for name in models:
            store.add(name)
        states = {name: ModelStatus(state="ready", dtype="fp32") for name in loaded}
        lacking = "" if ready else "still loading"
        pages = Pages(store, lambda: states, InProcessQueue(Limits()), lambda: lacking, b"")
        reply = await pages.find("GET", path).answer(path, b"")
        return reply.status, msgspec.json.decode(reply.body)

    return ask


async def test_info_tells_an_encoder_from_a_reranker_and_from_a_model_with_labels(ask):
    assert (await ask("/info", VIRTUAL_RERANKER))[1]["model_type"] == {
        "reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    }
    _, body = await ask("/info", VIRTUAL_EVERY_KIND)
    assert (body["model_id"], body["model_type"].keys()) == (VIRTUAL_EVERY_KIND, {"embedding"})
    assert (body["max_input_length"], body["auto_truncate"], body["model_dtype"]) == (512, True, None)
    assert (await ask("/info", loaded=(VIRTUAL_EVERY_KIND,)))[1]["model_dtype"] == "fp32"


async def test_info_names_every_label(ask):
    _, body = await ask("/info", VIRTUAL_LABELS)
    assert body["model_type"]["classifier"]["id2label"] == {
        "0": "contradiction",
        "1": "entailment",
        "2": "neutral",
    }


async def test_info_of_no_model_is_an_error_that_says_how_to_add_one(ask):
    with pytest.raises(ModelNotFound, match="shoal add"):
        await ask("/info")


async def test_health_is_503_until_ready_and_counts_what_is_loaded(ask):
    status, body = await ask("/health", ready=False)
    assert (status, body["type"], body["cluster"]["models_loaded"]) == (503, "gateway", 0)
    status, body = await ask("/health", VIRTUAL_LABELS, loaded=(VIRTUAL_LABELS,))
    assert (status, body["status"], body["cluster"]["models_loaded"]) == (200, "healthy", 1)


async def test_the_listing_says_kinds_labels_and_widths(ask):
    _, body = await ask(f"/v1/models/{VIRTUAL_EVERY_KIND}", VIRTUAL_EVERY_KIND, VIRTUAL_LABELS)
    assert body["outputs"] == ["dense", "sparse", "multivector", "score"]
    assert body["dims"] == {"dense": 384, "multivector": 32}
    _, body = await ask(f"/v1/models/{VIRTUAL_LABELS}")
    assert (body["outputs"], body["dims"]) == (["score"], {})
    assert body["labels"] == ["contradiction", "entailment", "neutral"]


async def test_of_hundreds_of_known_models_the_status_lists_those_at_work_and_some_of_the_others(ask):
    _, body = await ask("/status", known=MOST_LISTED + 20, loaded=(f"team/m{MOST_LISTED + 19:03}", "team/m000"))
    names = [model["name"] for model in body["models"]]
    assert (len(names), body["unlisted"]) == (MOST_LISTED, 20)
    assert names[0] == "team/m000"
    assert names[-1] == f"team/m{MOST_LISTED + 19:03}"
    assert len((await ask("/v1/models"))[1]["data"]) == MOST_LISTED + 20
