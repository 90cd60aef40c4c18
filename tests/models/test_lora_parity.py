"""LoRA adapters of every light family beside PEFT: tiny checkpoints with random weights, adapters that PEFT put
into transformers' own models, on every engine; different ones and none in one batch.
"""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("peft")

import peft
import torch
from sentence_transformers import SentenceTransformer
from test_family_parity import (
    CASES,
    ENGINES,
    LIMIT,
    encoder_facts,
    reference,
    rows,
    some_items,
    worst_cosine,
    written,
)

from shoal.protocol.facts import Facts, Profile, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import Adapting, Runtime, open_runtime
from shoal.testing.checkpoints import tiny_encoder

pytestmark = [
    pytest.mark.models,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # PEFT calls what transformers is about to rename
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]
NAMES = ["", "one", "two"]
KINDS = ["bert", "roberta", "distilbert", "mpnet", "modernbert-biased", "nomic", "gte"]
"""One for each way in which layers are named."""
SETTINGS = {
    "one": {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    "two": {"r": 8, "lora_alpha": 4, "target_modules": r".*\.(query|key|q|k|q_lin|q_proj|Wqkv|Wi|up_proj|fc1)",
            "use_rslora": True},
}  # fmt: skip


def with_peft(tmp_path: Path, case: str, auto: str, **config) -> dict[str, torch.nn.Module]:
    """transformers' model of `tmp_path`/base as it is, and with each adapter, which is saved beside it."""
    models = {}
    for seed, name in enumerate(NAMES):
        model = written(tmp_path / "base", case, auto, **config)
        if name:
            torch.manual_seed(seed)
            made = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **SETTINGS[name]))
            made.save_pretrained(tmp_path / name)
            made.eval()
        models[name] = model
    return models


def taken(tmp_path: Path, facts: Facts, profile: Profile) -> Runtime:
    runtime = open_runtime(tmp_path / "base", facts, profile)
    assert isinstance(runtime, Adapting)
    for name in NAMES[1:]:
        assert runtime.take_adapter(name, tmp_path / name) > 0
    return runtime


def mixed(items: list[Item]) -> list[tuple[int, Item]]:
    """Every item with every adapter and with none, in no order; with its place among `items`."""
    every = [(i, msgspec.structs.replace(item, adapter=name)) for i, item in enumerate(items) for name in NAMES]
    return random.Random(2).sample(every, len(every))


@pytest.mark.parametrize("case", KINDS)
def test_each_text_gets_the_vector_that_peft_gives_with_its_adapter(tmp_path, case):
    models = with_peft(tmp_path, case, "AutoModel")
    items = some_items()
    expected = None
    for engine, dtype in ENGINES:
        runtime = taken(tmp_path, encoder_facts(case), Profile(runtime=engine, dtype=dtype))
        if expected is None:
            prepared = runtime.prepare(items)
            expected = {
                name: np.stack([reference(model, p).last_hidden_state[0].mean(0).numpy() for p in prepared])
                for name, model in models.items()
            }
            for one, other in (("", "one"), ("", "two"), ("one", "two")):
                assert worst_cosine(expected[one], expected[other]) < 0.99
        every = mixed(items)
        computed = runtime.run(runtime.prepare([item for _, item in every]), 0).rows
        found = np.stack([row["dense"] for row in computed])
        wanted = np.stack([expected[item.adapter][i] for i, item in every])
        bar = 0.999 if runtime.profile.dtype == "bf16" else 0.9999
        assert worst_cosine(found, wanted) >= bar, (engine, dtype)
        if runtime.profile.dtype == "fp32":
            assert np.abs(found - wanted).max() <= 2e-4


@pytest.mark.parametrize("case", KINDS)
def test_each_pair_gets_the_score_that_peft_gives_with_its_adapter(tmp_path, case):
    config = {"num_labels": 1, "type_vocab_size": 2} if case == "bert" else {"num_labels": 1}
    models = with_peft(tmp_path, case, "AutoModelForSequenceClassification", **config)
    facts = Facts(tasks=("score",), family=CASES[case][0], files="safetensors", max_tokens=LIMIT)
    texts = ["fish", "paris is the capital of france", "the small fish swim " * 9, "shoal " * 300]
    items = [Item(text, pair=other) for text in texts for other in texts]
    expected = None
    for engine in ("openvino", "onnx"):
        runtime = taken(tmp_path, facts, Profile(runtime=engine))
        if expected is None:
            prepared = runtime.prepare(items)
            expected = {
                name: [reference(model, p).logits[0, 0].item() for p in prepared] for name, model in models.items()
            }
            for one, other in (("", "one"), ("", "two"), ("one", "two")):
                assert np.abs(np.subtract(expected[one], expected[other])).max() > 0.01
        every = mixed(items)
        computed = runtime.run(runtime.prepare([item for _, item in every]), 0).rows
        for (i, item), row in zip(every, computed, strict=True):
            assert abs(row["score"] - expected[item.adapter][i]) <= 2e-4, engine


@pytest.mark.parametrize("case", KINDS)
def test_each_text_gets_the_sparse_vector_that_peft_gives_with_its_adapter(tmp_path, case):
    models = with_peft(tmp_path, case, "AutoModelForMaskedLM")
    facts = Facts(
        tasks=("encode",), family=CASES[case][0], files="safetensors", max_tokens=LIMIT,
        kinds=("sparse",), sparse=Sparse(),
    )  # fmt: skip
    items = [Item(ids=item.ids, kinds=("sparse",)) for item in some_items()]
    expected = None
    for engine in ("openvino", "onnx"):
        runtime = taken(tmp_path, facts, Profile(runtime=engine))
        if expected is None:
            prepared = runtime.prepare(items)
            expected = {
                name: [np.log1p(reference(model, p).logits[0].numpy().clip(min=0)).max(0) for p in prepared]
                for name, model in models.items()
            }
            for one, other in (("", "one"), ("", "two"), ("one", "two")):
                assert np.abs(np.subtract(expected[one], expected[other])).max() > 0.01
        every = mixed(items)
        computed = runtime.run(runtime.prepare([item for _, item in every]), 0).rows
        for (i, item), row in zip(every, computed, strict=True):
            found = np.zeros_like(expected[""][i])
            found[row["sparse.indices"]] = row["sparse.values"]
            assert np.abs(found - expected[item.adapter][i]).max() <= 2e-4, engine


@pytest.mark.parametrize("writer", ["peft", "peft around it all", "sentence-transformers", "transformers", "bf16"])
def test_adapters_are_read_as_each_library_writes_them(tmp_path, monkeypatch, writer):
    # transformers asks for a PEFT newer than the one beside it here; what it writes is the same.
    monkeypatch.setattr("transformers.integrations.peft.MIN_PEFT_VERSION", "0.18.0")
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    facts = tiny_encoder(base)
    texts = ["fish", "paris is the capital of france", "the small shoal swim"]
    model = SentenceTransformer(str(base), device="cpu")
    plain = model.encode(texts)
    config = peft.LoraConfig(r=4, init_lora_weights=False, target_modules=["query", "dense"])
    torch.manual_seed(1)
    if writer == "sentence-transformers":
        model.add_adapter(config)
        model.save_pretrained(str(adapter))
    elif writer == "transformers":
        model[0].model.add_adapter(config)
        model[0].model.save_pretrained(adapter)
    else:
        made = peft.get_peft_model(model if writer == "peft around it all" else model[0].model, config)
        factors = [weight for name, weight in made.named_parameters() if ".lora_" in name]
        for weight in factors if writer == "bf16" else []:
            weight.data = weight.to(torch.bfloat16)
        made.save_pretrained(adapter)
        made.float()
    expected = model.eval().encode(texts)
    assert worst_cosine(expected, plain) < 0.99
    for engine in ("openvino", "pytorch"):
        runtime = open_runtime(base, facts, Profile(runtime=engine))
        assert isinstance(runtime, Adapting)
        runtime.take_adapter("own", adapter)
        found = rows(runtime, runtime.prepare([Item(text, adapter="own") for text in texts]), "dense")
        assert worst_cosine(found, expected) >= 0.9999
