"""What sentence-transformers and transformers save is read for what it is, every module and head."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification

from shoal.catalog import Model
from shoal.catalog.store import Store
from shoal.protocol import facts as words
from shoal.testing.checkpoints import WIDTH, tiny_encoder

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A bare BERT as transformers saves it."""
    tiny_encoder(tmp_path / "tiny")
    return saved(AutoModel.from_pretrained(tmp_path / "tiny"), tmp_path / "plain", tmp_path / "tiny")


def saved(model: Any, folder: Path, tokenizer: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    return folder


def added(store: Store, model: Any, folder: Path) -> Model:
    model.save(str(folder))
    return store.add(folder)


@pytest.mark.parametrize(
    ("mode", "pooling"),
    [
        ("mean", "mean"), ("cls", "cls"), ("max", "max"), ("mean_sqrt_len_tokens", "mean_sqrt_len"),
        ("weightedmean", "weighted_mean"), ("lasttoken", "last"),
    ],
)  # fmt: skip
def test_every_pooling_with_dense_layers_and_prompts(
    store: Store, plain: Path, tmp_path: Path, mode: str, pooling: str
) -> None:
    modules = [
        Transformer(str(plain)), Pooling(WIDTH, pooling_mode=mode), Dense(WIDTH, 16),
        Dense(16, 8, bias=False, activation_function=torch.nn.GELU()), Normalize(),
    ]  # fmt: skip
    model = SentenceTransformer(modules=modules, prompts={"query": "query: "}, default_prompt_name="query")
    facts = added(store, model, tmp_path / "m").facts
    assert (facts.pooling, facts.dims, facts.normalize) == (pooling, 8, True)
    assert facts.dense == (words.Dense("2_Dense", "tanh"), words.Dense("3_Dense", "gelu"))
    assert (facts.prompts["query"], facts.default_prompt) == ("query: ", "query")


def masked(plain: Path, tmp_path: Path) -> Transformer:
    network = BertForMaskedLM(BertConfig.from_pretrained(plain))
    return Transformer(str(saved(network, tmp_path / "mlm", plain)), transformer_task="fill-mask")


@pytest.mark.parametrize(("saved_as", "meant"), [("relu", "log1p_relu"), ("log1p_relu", "log1p_log1p_relu")])
def test_a_splade(store: Store, plain: Path, tmp_path: Path, saved_as: str, meant: str) -> None:
    head = SpladePooling("sum", activation_function=saved_as)
    facts = added(store, SparseEncoder(modules=[masked(plain, tmp_path), head]), tmp_path / "m").facts
    assert (facts.kinds, facts.dims) == (("sparse",), 0)
    assert facts.sparse == words.Sparse(pooling="sum", activation=meant)


def test_a_splade_that_is_asked_by_a_table_gets_the_table_as_a_file(
    store: Store, plain: Path, tmp_path: Path
) -> None:
    network = masked(plain, tmp_path)
    weights = torch.arange(len(network.tokenizer), dtype=torch.float32) / 8
    static = SparseStaticEmbedding(network.tokenizer, weight=weights)
    router = Router.for_query_document(query_modules=[static], document_modules=[network, SpladePooling("max")])
    model = added(store, SparseEncoder(modules=[router]), tmp_path / "m")
    assert model.facts.sparse == words.Sparse(queries="table", table="query_table.json")
    table = json.loads((model.folder / "query_table.json").read_text())
    vocabulary = network.tokenizer.get_vocab()
    assert table == {token: number / 8 for token, number in vocabulary.items() if number}
    assert (model.folder / "config.json").is_file()
    assert store.verify(model)


@pytest.mark.parametrize("attend", [True, False])
def test_a_colbert(store: Store, plain: Path, tmp_path: Path, attend: bool) -> None:
    model = MultiVectorEncoder(str(plain), prompts={"query": "[Q] ", "document": "[D] "})
    model[0].query_expansion = {"strategy": "fixed", "attend": attend, "length": 16}
    model[0].document_length = 48
    facts = added(store, model, tmp_path / "m").facts
    assert (facts.tasks, facts.kinds) == (("encode", "score"), ("multivector",))
    assert facts.prompts == {"query": "[Q] ", "document": "[D] "}
    assert facts.multivector == words.MultiVector(
        dims=128,
        projection=(words.Dense("1_Dense"),),
        query_tokens=16,
        document_tokens=48,
        attend_to_expansion=attend,
    )


@pytest.mark.parametrize(
    ("labels", "activation", "found"),
    [
        (1, None, "sigmoid"),
        (1, torch.nn.Identity(), "identity"),
        (2, None, "identity"),
        (3, None, "identity"),
        (3, torch.nn.Softmax(dim=-1), "softmax"),
    ],
)
def test_a_cross_encoder(
    store: Store, plain: Path, tmp_path: Path, labels: int, activation: torch.nn.Module | None, found: str
) -> None:
    model = CrossEncoder(str(plain), num_labels=labels, activation_fn=activation)
    facts = added(store, model, tmp_path / "m").facts
    names = tuple(f"LABEL_{i}" for i in range(labels)) if labels > 1 else ()
    assert (facts.tasks, facts.activation, facts.labels) == (("score",), found, names)


def test_a_classifier_of_transformers_goes_by_its_kind_of_problem(
    store: Store, plain: Path, tmp_path: Path
) -> None:
    names = {0: "anger", 1: "joy", 2: "fear"}
    config = BertConfig.from_pretrained(plain, id2label=names, problem_type="multi_label_classification")
    facts = store.add(saved(BertForSequenceClassification(config), tmp_path / "m", plain)).facts
    assert (facts.labels, facts.activation) == (("anger", "joy", "fear"), "sigmoid")


def test_weights_in_shards_are_taken_whole(store: Store, plain: Path, tmp_path: Path) -> None:
    network = AutoModel.from_pretrained(plain)
    folder = saved(network, tmp_path / "m", plain, max_shard_size="20KB")
    model = store.add(folder)
    kept = {path.name for path in model.folder.glob("*.safetensors*")}
    assert kept == {path.name for path in folder.glob("*.safetensors*")}
    assert len(kept) > 2
