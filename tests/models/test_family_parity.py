"""Every family beside transformers: tiny checkpoints with random weights, written by transformers itself, give
its own numbers on every engine, whatever the batch and at every length that matters.
"""

import json
import random

import numpy as np
import pytest

from shoal.protocol.facts import Facts, Profile, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime
from shoal.testing.checkpoints import tiny_tokenizer

pytestmark = pytest.mark.models

WIDTH, HEADS, LIMIT = 32, 4, 200
SIZES = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "max_position_embeddings": LIMIT,
    "pad_token_id": 0,
}
OFFSET = SIZES | {"pad_token_id": 1, "max_position_embeddings": LIMIT + 2, "type_vocab_size": 1}
DISTIL = {"dim": WIDTH, "n_heads": HEADS, "n_layers": 3, "hidden_dim": 48, "max_position_embeddings": LIMIT}
MODERN = SIZES | {
    "local_attention": 16,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
}
ROTARY = SIZES | {"type_vocab_size": 2}
BIASED = {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True}

CASES = {  # name: (family, transformers' name of the kind, its config)
    "bert": ("bert", "bert", SIZES),
    "roberta": ("roberta", "roberta", OFFSET),
    "xlm-roberta": ("roberta", "xlm-roberta", OFFSET | {"layer_norm_eps": 1e-5}),
    "camembert": ("roberta", "camembert", OFFSET),
    "distilbert": ("distilbert", "distilbert", DISTIL),
    "mpnet": ("mpnet", "mpnet", OFFSET),
    "modernbert": ("modernbert", "modernbert", MODERN),
    "modernbert-biased": ("modernbert", "modernbert", MODERN | BIASED | {"classifier_pooling": "mean"}),
    "nomic": ("nomic", "nomic_bert", ROTARY),
    "gte": ("nomic", "gte", ROTARY | {"type_vocab_size": 1}),
    "gte-without-segments": ("nomic", "gte", ROTARY | {"type_vocab_size": 0}),
}
ENGINES = [("openvino", "fp32"), ("onnx", "fp32"), ("openvino", "bf16")]
WORDS = ["the", "of", "paris", "london", "berlin", "capital", "france", "fish", "shoal", "swim", "small"]


def written(folder, case: str, auto: str, *, dtype: str = "float32", shard: str = "1GB", **config: object):
    """A model of this kind with weights drawn so wide that attention and norms matter, saved in `folder` in
    `dtype` and in shards of that size; what transformers reads there, in fp32."""
    import torch
    import transformers

    _, kind, settings = CASES[case]
    tokenizer = tiny_tokenizer(pad=int(settings.get("pad_token_id", 0)))
    torch.manual_seed(0)
    chosen = transformers.AutoConfig.for_model(kind, **settings, vocab_size=tokenizer.get_vocab_size(), **config)
    model = getattr(transformers, auto).from_config(chosen).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = weight.dim() == 1 and name.endswith("weight")
            weight.copy_(0.2 * torch.randn_like(weight) + is_norm)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    tokenizer.save(str(folder / "tokenizer.json"))
    return getattr(transformers, auto).from_pretrained(folder, dtype=torch.float32).eval()


def encoder_facts(case: str) -> Facts:
    return Facts(
        tasks=("encode",), family=CASES[case][0], files="safetensors", max_tokens=LIMIT, dims=WIDTH, pooling="mean"
    )


def some_items() -> list[Item]:
    """1, 2, limit − 1, limit, limit + 1 tokens beside the two markers, and some between."""
    rng = random.Random(0)
    return [Item(ids=rng.choices(range(5, 60), k=n)) for n in (1, 2, 3, 17, 40, 130, *range(LIMIT - 3, LIMIT + 2))]


def reference(model, prepared: Prepared):
    import torch

    inputs = {"input_ids": torch.tensor([prepared.ids])}
    if getattr(model.config, "type_vocab_size", 0) > 1:  # else its tokenizer would tell no segments either
        inputs["token_type_ids"] = torch.tensor([prepared.segments])
    with torch.no_grad():
        return model(**inputs)


def rows(runtime: Runtime, batch: list[Prepared], name: str) -> np.ndarray:
    return np.stack([row[name] for row in runtime.run(batch, 0).rows])


def alone_batched_and_shuffled(runtime: Runtime, batch: list[Prepared], name: str) -> list[np.ndarray]:
    order = random.Random(3).sample(range(len(batch)), len(batch))
    shuffled = rows(runtime, [batch[i] for i in order], name)
    alone = np.concatenate([rows(runtime, [prepared], name) for prepared in batch])
    return [alone, rows(runtime, batch, name), shuffled[np.argsort(order)]]


def worst_cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


@pytest.mark.parametrize(("runtime", "dtype"), ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_a_random_encoder_of_every_family_agrees_with_transformers(tmp_path, case, runtime, dtype):
    model = written(tmp_path, case, "AutoModel")
    loaded = open_runtime(tmp_path, encoder_facts(case), Profile(runtime=runtime, dtype=dtype))
    batch = loaded.prepare(some_items())
    assert [p.tokens for p in batch[-4:]] == [LIMIT] * 4
    expected = np.stack([reference(model, p).last_hidden_state[0].mean(0).numpy() for p in batch])
    for found in alone_batched_and_shuffled(loaded, batch, "dense"):
        if loaded.profile.dtype == "bf16":
            assert worst_cosine(found, expected) >= 0.999
        else:
            assert worst_cosine(found, expected) >= 0.9999
            assert np.abs(found - expected).max() <= 1e-4


@pytest.mark.parametrize("runtime", ["openvino", "onnx"])
@pytest.mark.parametrize("case", CASES)
def test_a_random_cross_encoder_of_every_family_agrees_with_transformers(tmp_path, case, runtime):
    config = {"num_labels": 1, "type_vocab_size": 2} if case == "bert" else {"num_labels": 1}
    model = written(tmp_path, case, "AutoModelForSequenceClassification", **config)
    facts = Facts(tasks=("score",), family=CASES[case][0], files="safetensors", max_tokens=LIMIT)
    loaded = open_runtime(tmp_path, facts, Profile(runtime=runtime))
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS, k=n)) for n in (1, 2, 9, 30, 90, 97, 98, 99, 300)]
    batch = loaded.prepare([Item(text, pair=other) for text, other in zip(texts, texts[::-1], strict=True)])
    expected = np.array([reference(model, p).logits[0, 0].item() for p in batch])
    assert np.ptp(expected) > 0.01
    for found in alone_batched_and_shuffled(loaded, batch, "score"):
        assert np.abs(found - expected).max() <= 1e-4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("runtime", ["openvino", "onnx"])
@pytest.mark.parametrize("case", ["bert", "roberta", "modernbert"])
def test_weights_in_half_precision_and_in_shards_give_the_numbers_of_that_very_checkpoint(
    tmp_path, case, runtime, dtype
):
    model = written(tmp_path, case, "AutoModel", dtype=dtype, shard="8KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = open_runtime(tmp_path, encoder_facts(case), Profile(runtime=runtime))
    batch = loaded.prepare(some_items())
    expected = np.stack([reference(model, p).last_hidden_state[0].mean(0).numpy() for p in batch])
    assert np.abs(rows(loaded, batch, "dense") - expected).max() <= 1e-4


@pytest.mark.parametrize("runtime", ["openvino", "onnx"])
@pytest.mark.parametrize("case", CASES)
def test_a_random_masked_language_model_of_every_family_agrees_with_transformers(tmp_path, case, runtime):
    model = written(tmp_path, case, "AutoModelForMaskedLM")
    facts = Facts(
        tasks=("encode",), family=CASES[case][0], files="safetensors", max_tokens=LIMIT,
        kinds=("sparse",), sparse=Sparse(),
    )  # fmt: skip
    loaded = open_runtime(tmp_path, facts, Profile(runtime=runtime))
    items = [Item(ids=item.ids, kinds=("sparse",)) for item in some_items()]
    batch = loaded.prepare(items)
    for prepared, row in zip(batch, loaded.run(batch, 0).rows, strict=True):
        logits = reference(model, prepared).logits[0].numpy()
        expected = np.log1p(np.maximum(logits, 0)).max(axis=0)
        found = np.zeros_like(expected)
        found[row["sparse.indices"]] = row["sparse.values"]
        assert np.abs(found - expected).max() <= 1e-4
        assert np.count_nonzero(expected) > 5


def test_nomics_own_names_of_its_settings_change_no_number(tmp_path):
    written(tmp_path, "nomic", "AutoModel")
    profile = Profile(runtime="openvino")
    loaded = open_runtime(tmp_path, encoder_facts("nomic"), profile)
    expected = rows(loaded, loaded.prepare(some_items()), "dense")
    own = {
        "model_type": "nomic_bert", "n_embd": WIDTH, "n_head": HEADS, "n_layer": 3, "n_inner": 48,
        "n_positions": LIMIT, "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "type_vocab_size": 2,
        "activation_function": "swiglu", "vocab_size": tiny_tokenizer().get_vocab_size(),
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(own))
    loaded = open_runtime(tmp_path, encoder_facts("nomic"), profile)
    assert np.array_equal(rows(loaded, loaded.prepare(some_items()), "dense"), expected)


@pytest.mark.parametrize("case", ["bert", "roberta", "modernbert"])
def test_the_side_on_which_a_tokenizer_pads_makes_no_difference(tmp_path, case):
    model = written(tmp_path, case, "AutoModel")
    tokenizer = tiny_tokenizer(pad=int(CASES[case][2].get("pad_token_id", 0)))
    tokenizer.enable_padding(direction="left", length=64)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = open_runtime(tmp_path, encoder_facts(case), Profile(runtime="openvino"))
    batch = loaded.prepare([Item("fish"), Item("small fish swim in paris " * 9), Item("the shoal")])
    expected = np.stack([reference(model, p).last_hidden_state[0].mean(0).numpy() for p in batch])
    assert np.abs(rows(loaded, batch, "dense") - expected).max() <= 1e-4
