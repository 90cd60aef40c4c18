"""The numbers that come out, beside those of the reference: sentence-transformers and transformers in fp32, and
for models that exist as ONNX only the artifact itself, run alone by plain ONNX Runtime.
"""

import json
import random

import numpy as np
import pytest
from artifact import Artifact
from safetensors.numpy import load_file, save_file

from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.testing.checkpoints import tiny_encoder, tiny_reranker

pytestmark = pytest.mark.models

ENGINES = [("openvino", "bf16", 0.9999), ("openvino", "fp32", 0.99999), ("onnx", "fp32", 0.99999)]
EXACT = [("openvino", "fp32"), ("onnx", "fp32")]

TEXTS = [
    "a",
    "Paris is the capital of France.",
    "Das Haus am See wurde 1923 gebaut – für 12.000 Mark.",
    "日本語のテキスト",
    "naïve café résumé",
    "email me at someone@example.org, or see https://example.org/a?b=c#d",
    "   spaces\tand\nlines   ",
    "antidisestablishmentarianism " * 5,
    "😀 emoji and \u200b invisible",
    "def f(x):\n    return x ** 2  # a comment",
    "a" * 150,
    *("The quick brown fox jumps over the lazy dog. " * n for n in (2, 7, 15, 24, 60)),
]
LENGTHS = [1, 2, 253, 254, 255, 2000]  # words of one token each: MiniLM has room for 254
PAIRS = [
    ("What is the capital of France?", document)
    for document in (
        "Paris is the capital and largest city of France.",
        "London is the capital of the United Kingdom.",
        "France",
        "The fish swim in a shoal. " * 20,
        "Paris. " * 600,
    )
] + [("fish " * 300, "swim " * 301), ("a", "b")]


def opened(folder, facts: Facts, runtime: str, dtype: str = "fp32") -> Runtime:
    return open_runtime(folder, facts, Profile(runtime=runtime, dtype=dtype))


def rows(runtime: Runtime, items: list[Item], name: str) -> np.ndarray:
    batch = runtime.prepare(items)
    assert all(isinstance(entry, Prepared) for entry in batch)
    return np.stack([row[name] for row in runtime.run(batch, 0).rows])


def alone_batched_and_shuffled(runtime: Runtime, items: list[Item], name: str) -> list[np.ndarray]:
    """The rows of `items`, in their order, computed in three ways."""
    order = random.Random(3).sample(range(len(items)), len(items))
    shuffled = rows(runtime, [items[i] for i in order], name)
    alone = np.concatenate([rows(runtime, [item], name) for item in items])
    return [alone, rows(runtime, items, name), shuffled[np.argsort(order)]]


def worst_cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


@pytest.fixture(scope="session")
def sentence_transformer(minilm):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm.folder), device="cpu")


@pytest.mark.parametrize(("runtime", "dtype", "cosine"), ENGINES)
def test_minilm_gives_the_vectors_of_sentence_transformers(minilm, sentence_transformer, runtime, dtype, cosine):
    loaded = opened(minilm.folder, minilm.facts, runtime, dtype)
    texts = TEXTS + ["fish " * n for n in LENGTHS]
    expected = sentence_transformer.encode(texts)
    for found in alone_batched_and_shuffled(loaded, [Item(text) for text in texts], "dense"):
        assert worst_cosine(found, expected) >= cosine


def test_minilm_counts_the_tokens_that_sentence_transformers_counts(minilm, sentence_transformer):
    loaded = opened(minilm.folder, minilm.facts, "openvino")
    texts = TEXTS + ["fish " * n for n in LENGTHS]
    for text, prepared in zip(texts, loaded.prepare([Item(text) for text in texts]), strict=True):
        expected = sentence_transformer.tokenizer(text, truncation=True, max_length=minilm.facts.max_tokens)
        assert prepared.ids == expected["input_ids"]


def test_minilm_gives_texts_and_their_token_ids_the_same_vector(minilm):
    loaded = opened(minilm.folder, minilm.facts, "openvino")
    as_text = loaded.prepare([Item(text) for text in TEXTS])
    as_ids = [Item(ids=prepared.ids[1:-1]) for prepared in as_text]
    found = rows(loaded, as_ids, "dense")
    assert worst_cosine(found, rows(loaded, [Item(text) for text in TEXTS], "dense")) >= 0.99999


def test_bge_gives_the_vectors_of_its_artifact_run_alone(bge):
    loaded = opened(bge.folder, bge.facts, "onnx")
    texts = TEXTS[:8]
    artifact = Artifact(bge.folder, bge.facts.max_tokens)
    expected = np.stack([artifact.first_token(text) for text in texts])
    for found in alone_batched_and_shuffled(loaded, [Item(text) for text in texts], "dense"):
        assert np.abs(found - expected).max() <= 1e-5


def test_the_reranker_gives_the_scores_of_its_artifact_run_alone(reranker):
    loaded = opened(reranker.folder, reranker.facts, "onnx")
    artifact = Artifact(reranker.folder, 512)
    expected = np.concatenate([artifact.first_output(*pair)[0] for pair in PAIRS])
    items = [Item(query, pair=document) for query, document in PAIRS]
    for found in alone_batched_and_shuffled(loaded, items, "score"):
        assert np.abs(found - expected).max() <= 1e-3


def test_the_reranker_puts_paris_above_london(reranker):
    loaded = opened(reranker.folder, reranker.facts, "onnx")
    paris, london = rows(loaded, [Item(query, pair=document) for query, document in PAIRS[:2]], "score")
    assert paris > london


VARIANTS = [{}, {"hidden_act": "gelu_new"}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-3}]


def configure(folder, changes: dict[str, object]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
def test_a_random_encoder_agrees_with_transformers(tmp_path, runtime, dtype, pooling, changes):
    import torch
    from transformers import AutoModel

    facts = tiny_encoder(tmp_path, pooling=pooling, normalize=False)
    configure(tmp_path, changes)
    loaded = opened(tmp_path, facts, runtime, dtype)
    reference = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    items = [Item("fish " * n) for n in (1, 2, 61, 62, 63, 300)] + [Item(text) for text in TEXTS]
    expected = []
    for prepared in loaded.prepare(items):
        with torch.no_grad():
            states = reference(torch.tensor([prepared.ids])).last_hidden_state[0]
        expected.append((states.mean(0) if pooling == "mean" else states[0]).numpy())
    for found in alone_batched_and_shuffled(loaded, items, "dense"):
        assert np.abs(found - np.stack(expected)).max() <= 1e-4


@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
def test_a_random_cross_encoder_agrees_with_transformers(tmp_path, runtime, dtype):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    loaded = opened(tmp_path, tiny_reranker(tmp_path), runtime, dtype)
    reference = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    expected = []
    for query, document in PAIRS:
        inputs = tokenizer(query, document, truncation=True, max_length=64, return_tensors="pt")
        with torch.no_grad():
            expected.append(reference(**inputs).logits[0, 0].item())
    items = [Item(query, pair=document) for query, document in PAIRS]
    for found in alone_batched_and_shuffled(loaded, items, "score"):
        assert np.abs(found - expected).max() <= 1e-4


def test_names_that_old_checkpoints_use_change_nothing(tmp_path):
    facts = tiny_encoder(tmp_path)
    items = [Item(text) for text in TEXTS]
    expected = rows(opened(tmp_path, facts, "openvino"), items, "dense")
    old = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(old, tmp_path / "model.safetensors")
    assert np.allclose(rows(opened(tmp_path, facts, "openvino"), items, "dense"), expected, atol=1e-6)
