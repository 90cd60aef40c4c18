"""LoRA adapters in the pytorch runtime beside PEFT itself: different ones, and none, in one batch."""

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("peft")

import peft
import torch
import transformers
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from test_pytorch import (
    FAMILIES,
    PACKED,
    PAIRS,
    TEXTS,
    WIDTH,
    configs,
    encoder_facts,
    opened,
    their_tokenizer,
    worst,
    write_transformer,
)
from test_pytorch_generative import write_ranker

from shoal.catalog.store import Store
from shoal.protocol.errors import InferenceError, ModelLoadFailed
from shoal.protocol.facts import Dense as DenseFacts
from shoal.protocol.facts import MultiVector, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import Adapting, pytorch_lowrank, pytorch_packed
from shoal.runtimes.compute import compute
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import POSITIONS, tiny_encoder

pytestmark = [
    pytest.mark.models,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # PEFT calls what transformers is about to rename
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]
NAMES = ["", "one", "two"]
SETTINGS = {
    "one": {"r": 4, "lora_alpha": 8},
    "two": {"r": 8, "lora_alpha": 4, "use_rslora": True},
}


def adapted(model: torch.nn.Module, folder: Path, **settings) -> None:
    """Factors of PEFT's own put into this model, and saved."""
    settings.setdefault("target_modules", "all-linear")
    torch.manual_seed(len(folder.name) + settings["r"])
    made = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **settings))
    made.save_pretrained(folder)
    made.eval()


def of_texts(folder: Path):
    reference = SentenceTransformer(str(folder), device="cpu")
    reference[0].processor = their_tokenizer()  # some architectures would read its file by rules of their own
    return reference


def references(tmp_path: Path, make, compute_all, **settings) -> dict[str, list[np.ndarray]]:
    """What the library and PEFT give: of the base, and with each adapter, whose folder is named after it."""
    found = {}
    for name in NAMES:
        model = make()
        if name:
            adapted(model[0].model, tmp_path / name, **SETTINGS[name], **settings)
        found[name] = [np.asarray(row) for row in compute_all(model)]
    return found


def taken(runtime, tmp_path: Path):
    assert isinstance(runtime, Adapting)
    for name in NAMES[1:]:
        stored = tmp_path / name / "adapter_model.safetensors"
        assert 0 < runtime.take_adapter(name, tmp_path / name) <= stored.stat().st_size
    return runtime


def check(runtime, items: list[Item], expected: dict[str, list[np.ndarray]], output: str, bar: float = 2e-5):
    """Every item with every adapter and with none in one batch, in no order; and with one adapter alone."""
    every = [(i, name) for i in range(len(items)) for name in NAMES]
    random.Random(1).shuffle(every)
    for some in (every, [(i, name) for i, name in every if name == "two"]):
        batch = runtime.prepare([msgspec.structs.replace(items[i], adapter=name) for i, name in some])
        rows = [row[output] for row in runtime.run(batch, 0).rows]
        assert worst(rows, [expected[name][i] for i, name in some]) <= bar
    for one, other in (("", "one"), ("", "two"), ("one", "two")):
        assert worst(expected[one], expected[other]) > 100 * bar


@pytest.mark.parametrize("family", FAMILIES)
def test_every_architecture_gives_each_text_the_vector_of_its_own_adapter(tmp_path, family):
    write_transformer(tmp_path, configs()[family])
    targets = ["query", "value", "dense"] if family == "longformer" else "all-linear"  # none that it leaves alone
    expected = references(
        tmp_path / "adapters", lambda: of_texts(tmp_path), lambda model: model.encode(TEXTS),
        target_modules=targets,
    )  # fmt: skip
    runtime = taken(opened(tmp_path, encoder_facts(f"{family} as it comes")), tmp_path / "adapters")
    check(runtime, [Item(text) for text in TEXTS], expected, "dense")


@pytest.mark.parametrize("family", PACKED)
def test_packed_texts_keep_their_own_adapters_too(tmp_path, monkeypatch, family):
    monkeypatch.setattr(pytorch_packed, "has_kernel", lambda device, dtype: True)
    write_transformer(tmp_path, configs()[family])
    expected = references(tmp_path / "adapters", lambda: of_texts(tmp_path), lambda model: model.encode(TEXTS))
    runtime = taken(opened(tmp_path, encoder_facts(f"{family} as it comes")), tmp_path / "adapters")
    batch = runtime.prepare([Item(text) for text in TEXTS])
    assert runtime.run(batch, 0).tokens == sum(p.tokens for p in batch)
    check(runtime, [Item(text) for text in TEXTS], expected, "dense")


@pytest.mark.parametrize("columns", [0, 8, 10, 1000])
def test_factors_of_several_adapters_are_multiplied_at_once_or_one_by_one(tmp_path, monkeypatch, columns):
    """As on an accelerator, where one product of all costs less than many small ones."""
    monkeypatch.setattr(pytorch_lowrank, "at_once", lambda device: columns)
    tiny_encoder(tmp_path, normalize=False)
    expected = references(
        tmp_path / "adapters", lambda: SentenceTransformer(str(tmp_path)), lambda model: model.encode(TEXTS)
    )
    facts = encoder_facts("bert")
    check(taken(opened(tmp_path, facts), tmp_path / "adapters"), [Item(text) for text in TEXTS], expected, "dense")


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "deberta-v2", "modernbert"])
def test_cross_encoders_and_classifiers_are_adapted_with_their_heads(tmp_path, family):
    config = configs()[family]
    config.num_labels = 1
    write_transformer(tmp_path, config, transformers.AutoModelForSequenceClassification)

    def make():
        reference = CrossEncoder(str(tmp_path), device="cpu", max_length=POSITIONS)
        reference[0].processor = their_tokenizer()
        return reference

    def scores(model):
        return model.predict(PAIRS, activation_fn=torch.nn.Identity())

    expected = references(tmp_path / "adapters", make, scores)
    facts = msgspec.structs.replace(encoder_facts(f"{family} as it comes"), tasks=("score",), dims=0)
    runtime = taken(opened(tmp_path, facts), tmp_path / "adapters")
    check(runtime, [Item(query, pair=document) for query, document in PAIRS], expected, "score")


def test_a_classifier_with_several_labels_is_adapted(tmp_path):
    config = configs()["bert"]
    config.num_labels = 3
    write_transformer(tmp_path, config, transformers.AutoModelForSequenceClassification)
    expected = references(
        tmp_path / "adapters", lambda: CrossEncoder(str(tmp_path), device="cpu", max_length=POSITIONS),
        lambda model: model.predict(PAIRS, activation_fn=torch.nn.Identity()),
    )  # fmt: skip
    facts = msgspec.structs.replace(encoder_facts("bert"), tasks=("score",), dims=0, labels=("no", "maybe", "yes"))
    runtime = taken(opened(tmp_path, facts), tmp_path / "adapters")
    check(runtime, [Item(query, pair=document) for query, document in PAIRS], expected, "score")


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_sparse_encoders_are_adapted_up_to_their_head(tmp_path, family):
    write_transformer(tmp_path / "plain", configs()[family], transformers.AutoModelForMaskedLM)

    def make():
        first = Transformer(str(tmp_path / "plain"), transformer_task="fill-mask")
        first.processor = their_tokenizer()
        return SparseEncoder(modules=[first, SpladePooling(pooling_strategy="max")], device="cpu")

    def weights(model):
        return model.encode(TEXTS, convert_to_sparse_tensor=False).numpy()

    expected = references(tmp_path / "adapters", make, weights)
    make().save(str(tmp_path / "saved"))
    facts = encoder_facts(f"{family} as it comes", dims=0, pooling="none", kinds=("sparse",), sparse=Sparse())
    runtime = taken(opened(tmp_path / "saved", facts), tmp_path / "adapters")
    every = [(i, name) for i in range(len(TEXTS)) for name in NAMES]
    batch = runtime.prepare([Item(TEXTS[i], kinds=("sparse",), adapter=name) for i, name in every])
    for (i, name), row in zip(every, runtime.run(batch, 0).rows, strict=True):
        found = np.zeros_like(expected[name][i])
        found[row["sparse.indices"]] = row["sparse.values"]
        assert np.allclose(found, expected[name][i], rtol=1e-4, atol=1e-5)
    assert worst(expected["one"], expected["two"]) > 0.01 < worst(expected[""], expected["one"])


def test_token_vectors_are_adapted_below_their_projection(tmp_path):
    write_transformer(tmp_path / "plain", configs()["bert"])
    torch.manual_seed(1)
    projection = Dense(WIDTH, 16, bias=False, activation_function=torch.nn.Identity(),
                       module_input_name="token_embeddings")  # fmt: skip
    norm = Normalize(module_input_name="token_embeddings")

    def make():
        first = Transformer(str(tmp_path / "plain"))
        return MultiVectorEncoder(modules=[first, projection, norm], device="cpu")

    def vectors(model):
        return model.encode_document(TEXTS, convert_to_numpy=True)

    expected = references(tmp_path / "adapters", make, vectors)
    make().save(str(tmp_path / "saved"))
    facts = encoder_facts(
        "bert", dims=0, pooling="none", kinds=("multivector",),
        multivector=MultiVector(dims=16, projection=(DenseFacts("1_Dense"),), expand=False, query_tokens=0),
    )  # fmt: skip
    runtime = taken(opened(tmp_path / "saved", facts), tmp_path / "adapters")
    items = [Item(text, kinds=("multivector",), is_query=False) for text in TEXTS]
    check(runtime, items, expected, "multivector")


def test_a_language_model_that_scores_is_adapted(tmp_path):
    write_ranker(tmp_path / "ranker")
    model = Store(tmp_path / "home").add(tmp_path / "ranker" / "saved", name="acme/ranker")
    expected = references(
        tmp_path / "adapters", lambda: CrossEncoder(str(model.folder), device="cpu"),
        lambda reference: reference.predict(PAIRS),
    )  # fmt: skip
    runtime = taken(opened(model.folder, model.facts), tmp_path / "adapters")
    check(runtime, [Item(query, pair=document) for query, document in PAIRS], expected, "score", bar=1e-4)


def test_bf16_is_near_peft_in_fp32(minilm, tmp_path):
    expected = references(
        tmp_path,
        lambda: SentenceTransformer(str(minilm.folder), device="cpu"),
        lambda model: model.encode(TEXTS[:4]),
    )
    runtime = opened(minilm.folder, minilm.facts, dtype="bf16")
    if runtime.profile.dtype != "bf16":
        pytest.skip("no bf16 on this processor")
    taken(runtime, tmp_path)
    batch = runtime.prepare([Item(text, adapter=name) for text in TEXTS[:4] for name in NAMES])
    rows = iter(runtime.run(batch, 0).rows)
    for i in range(4):
        for name in NAMES:
            assert float(next(rows)["dense"] @ expected[name][i]) >= 0.999


def test_where_a_layer_does_not_see_text_by_text_each_adapter_has_a_pass_of_its_own(tmp_path):
    """DeBERTa's keys are made of distances too, which all texts share."""
    config = configs()["deberta-v2"]
    config.share_att_key = True
    write_transformer(tmp_path, config)
    expected = references(tmp_path / "adapters", lambda: of_texts(tmp_path), lambda model: model.encode(TEXTS))
    runtime = taken(opened(tmp_path, encoder_facts("deberta-v2 as it comes")), tmp_path / "adapters")
    check(runtime, [Item(text) for text in TEXTS], expected, "dense")
    runtime.take_adapter("three", write_adapter(tmp_path / "three", tmp_path, targets=["output.dense"]))

    def passes(*names: str) -> int:
        return len(runtime._encoder.adapters.passes(runtime.prepare([Item("fish", adapter=n) for n in names])))

    assert passes("", "one", "two", "one") == 3
    assert passes("", "three", "") == 1


def test_factors_of_a_layer_that_is_never_called_are_refused(tmp_path):
    write_transformer(tmp_path, configs()["longformer"])
    runtime = opened(tmp_path, encoder_facts("longformer as it comes"))
    with pytest.raises(ModelLoadFailed, match="key_global"):
        runtime.take_adapter("one", write_adapter(tmp_path / "one", tmp_path, targets=["key", "key_global"]))


def test_texts_without_an_adapter_are_computed_as_if_there_were_none(tmp_path):
    runtime = opened(tmp_path, tiny_encoder(tmp_path))
    batch = runtime.prepare([Item(text) for text in TEXTS])
    before = [row["dense"] for row in runtime.run(batch, 0).rows]
    runtime.take_adapter("one", write_adapter(tmp_path / "one", tmp_path))
    after = [row["dense"] for row in runtime.run(batch, 0).rows]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_an_adapter_that_was_dropped_or_never_came_fails_its_own_items_only(tmp_path):
    runtime = opened(tmp_path, tiny_encoder(tmp_path))
    runtime.take_adapter("one", write_adapter(tmp_path / "one", tmp_path))
    runtime.drop_adapter("one")
    runtime.drop_adapter("one")
    batch = runtime.prepare([Item("fish", adapter=name) for name in ("", "one", "never", "")])
    with pytest.raises(InferenceError, match="not held"):
        runtime.run(batch, 0)
    outputs, _ = compute(runtime, batch, 0, [""] * 4)
    assert [output.fault is None for output in outputs] == [True, False, False, True]
    runtime.take_adapter("one", tmp_path / "one")
    outputs, _ = compute(runtime, batch[:2], 0, [""] * 2)
    assert [output.fault for output in outputs] == [None, None]


def test_an_adapter_of_another_base_is_refused_and_the_others_serve_on(tmp_path):
    runtime = opened(tmp_path / "base", tiny_encoder(tmp_path / "base"))
    write_transformer(tmp_path / "other", configs()["distilbert"])
    runtime.take_adapter("one", write_adapter(tmp_path / "one", tmp_path / "base"))
    batch = runtime.prepare([Item("fish", adapter="one")])
    before = runtime.run(batch, 0).rows[0]["dense"]
    with pytest.raises(ModelLoadFailed, match="no linear layer of this name"):
        runtime.take_adapter("two", write_adapter(tmp_path / "two", tmp_path / "other"))
    with pytest.raises(ModelLoadFailed, match="bias"):
        runtime.take_adapter("three", write_adapter(tmp_path / "three", tmp_path / "base", bias="all"))
    assert np.array_equal(runtime.run(batch, 0).rows[0]["dense"], before)


def test_adapters_come_and_go_while_others_are_computed(tmp_path):
    runtime = opened(tmp_path, tiny_encoder(tmp_path), streams=2)
    folders = {name: write_adapter(tmp_path / name, tmp_path, seed=i) for i, name in enumerate("abcd")}
    for name in "ab":
        runtime.take_adapter(name, folders[name])
    batch = runtime.prepare([Item(text, adapter=name) for text in TEXTS for name in ("", "a", "b")])
    expected = [row["dense"] for row in runtime.run(batch, 0).rows]
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for name in "cd":
                runtime.take_adapter(name, folders[name])
            for name in "cd":
                runtime.drop_adapter(name)

    with ThreadPoolExecutor(3) as pool:
        coming = pool.submit(come_and_go)
        try:
            streams = [[pool.submit(runtime.run, batch, slot) for slot in (0, 1)] for _ in range(20)]
            for future in itertools.chain(*streams):
                rows = [row["dense"] for row in future.result(60).rows]
                assert worst(rows, expected) <= 1e-6
        finally:
            ended.set()
        coming.result(60)


def test_a_model_whose_sparse_queries_are_looked_up_takes_adapters_for_its_documents(tmp_path):
    write_transformer(tmp_path, configs()["bert"], transformers.AutoModelForMaskedLM)
    (tmp_path / "weights.json").write_text('{"fish": 1.5}')
    facts = encoder_facts(
        "bert", dims=0, pooling="none", kinds=("sparse",), sparse=Sparse(queries="table", table="weights.json")
    )
    runtime = opened(tmp_path, facts)
    assert isinstance(runtime, Adapting)
    runtime.take_adapter("one", write_adapter(tmp_path / "one", tmp_path))
    items = [
        Item("fish", kinds=("sparse",), is_query=is_query, adapter=name)
        for is_query in (True, False)
        for name in ("", "one")
    ]
    rows = [row["sparse.values"] for row in runtime.run(runtime.prepare(items), 0).rows]
    assert np.array_equal(rows[0], rows[1])
    assert len(rows[2]) != len(rows[3]) or not np.allclose(rows[2], rows[3])
