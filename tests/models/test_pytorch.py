"""The pytorch runtime beside sentence-transformers itself: what it computes, what it refuses to open."""

import json
import os
import random
import subprocess
import sys

import msgspec
import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import torch
import transformers
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SpladePooling

import shoal
from shoal.catalog.known import ON_PYTORCH
from shoal.catalog.store import Store
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Dense as DenseFacts
from shoal.protocol.facts import Facts, MultiVector, Profile, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import Prepared, Runtime, open_runtime, pytorch_packed
from shoal.runtimes.compute import compute
from shoal.testing.checkpoints import POSITIONS, tiny_encoder, tiny_reranker, tiny_tokenizer
from shoal.testing.server import serving

pytestmark = pytest.mark.models

WIDTH = 32
TEXTS = ["a", "paris is the capital of france", "fish " * 61, "fish " * 62, "fish " * 63, "swim " * 300]
TEXTS += ["the small fish swim in the shoal " * n for n in (1, 3, 6)] + ["unknown wörds, and 鱼群!"]
PAIRS = [("capital of france", text) for text in TEXTS] + [("fish " * 200, "swim " * 201)]


def opened(folder, facts: Facts, **profile) -> Runtime:
    return open_runtime(folder, facts, Profile(runtime="pytorch", **profile))


def rows(runtime: Runtime, items: list[Item], name: str = "dense") -> list[np.ndarray]:
    batch = runtime.prepare(items)
    assert all(isinstance(entry, Prepared) for entry in batch)
    return [row[name] for row in runtime.run(batch, 0).rows]


def in_three_ways(runtime: Runtime, items: list[Item], name: str = "dense") -> list[list[np.ndarray]]:
    """Alone, batched and shuffled; in the items' order."""
    order = random.Random(3).sample(range(len(items)), len(items))
    shuffled = rows(runtime, [items[i] for i in order], name)
    alone = [rows(runtime, [item], name)[0] for item in items]
    return [alone, rows(runtime, items, name), [shuffled[order.index(i)] for i in range(len(items))]]


def worst(found: list[np.ndarray], expected) -> float:
    return max(float(np.abs(a - np.asarray(b)).max()) for a, b in zip(found, expected, strict=True))


def configs() -> dict[str, transformers.PretrainedConfig]:
    """Architectures that differ in how they know places, what they add up and where they look; all that a model
    may be of without being built in, and some that are."""
    size = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    common = {"vocab_size": tiny_tokenizer().get_vocab_size(), "hidden_size": WIDTH, "pad_token_id": 0, **size}
    learned = {**common, "max_position_embeddings": POSITIONS}
    offset = {**common, "max_position_embeddings": POSITIONS + 1}
    grouped = {**learned, "num_key_value_heads": 2}
    split = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    t5 = {
        "vocab_size": common["vocab_size"],
        "d_model": WIDTH,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
    }
    marks = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    known = transformers
    return {
        "albert": known.AlbertConfig(**learned, embedding_size=16),
        "bert": known.BertConfig(**learned),
        "big_bird": known.BigBirdConfig(**learned, attention_type="original_full"),
        "deberta": known.DebertaConfig(**learned, **split),
        "deberta-v2": known.DebertaV2Config(**learned, **split, position_buckets=8),
        "distilbert": known.DistilBertConfig(
            vocab_size=common["vocab_size"], dim=WIDTH, n_layers=2, n_heads=4, hidden_dim=64,
            max_position_embeddings=POSITIONS,
        ),
        "electra": known.ElectraConfig(**learned, embedding_size=16),
        "ernie": known.ErnieConfig(**learned),
        "eurobert": known.EuroBertConfig(**learned),
        "gemma2": known.Gemma2Config(**grouped, head_dim=8, sliding_window=8),
        "gemma3_text": known.Gemma3TextConfig(
            **grouped, head_dim=8, sliding_window=8, use_bidirectional_attention=True
        ),
        "llama": known.LlamaConfig(**grouped),
        "longformer": known.LongformerConfig(**offset, attention_window=[8, 8]),
        "megatron-bert": known.MegatronBertConfig(**learned),
        "mistral": known.MistralConfig(**grouped, sliding_window=8),
        "modernbert": known.ModernBertConfig(**learned, **marks, local_attention=8, global_attn_every_n_layers=2),
        "mpnet": known.MPNetConfig(**{**common, "max_position_embeddings": POSITIONS + 2}),
        "mt5": known.MT5Config(**t5),
        "qwen2": known.Qwen2Config(**grouped),
        "qwen3": known.Qwen3Config(**grouped, head_dim=8),
        "rembert": known.RemBertConfig(**learned, input_embedding_size=16, output_embedding_size=16),
        "roberta": known.RobertaConfig(**offset),
        "roformer": known.RoFormerConfig(**learned),
        "t5": known.T5Config(**t5),
        "umt5": known.UMT5Config(**t5),
        "xlm-roberta-xl": known.XLMRobertaXLConfig(**offset),
    }  # fmt: skip


def write_transformer(folder, config: transformers.PretrainedConfig, head=transformers.AutoModel) -> None:
    """A random model of that architecture with the tests' tokenizer, as transformers saves it."""
    torch.manual_seed(0)
    model = head.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.2)
    model.save_pretrained(folder)
    their_tokenizer().save_pretrained(folder)


def their_tokenizer() -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(), model_max_length=POSITIONS,
        **{f"{marker}_token": f"[{marker.upper()}]" for marker in ("pad", "unk", "cls", "sep", "mask")},
    )  # fmt: skip


def encoder_facts(family: str, **more) -> Facts:
    return Facts(
        tasks=("encode",), family=family, files="safetensors", max_tokens=POSITIONS,
        **{"dims": WIDTH, "pooling": "mean", **more},
    )  # fmt: skip


FAMILIES = configs()


def test_every_kind_that_the_catalog_sends_here_is_tried():
    assert set(FAMILIES) >= ON_PYTORCH


@pytest.mark.parametrize("family", FAMILIES)
def test_an_architecture_gives_the_vectors_of_sentence_transformers(tmp_path, family):
    write_transformer(tmp_path, configs()[family])
    reference = SentenceTransformer(str(tmp_path), device="cpu")
    reference[0].processor = their_tokenizer()  # some architectures would read its file by rules of their own
    expected = reference.encode(TEXTS)
    runtime = opened(tmp_path, encoder_facts(f"{family} as it comes"))
    for found in in_three_ways(runtime, [Item(text) for text in TEXTS]):
        assert worst(found, expected) <= 1e-5


@pytest.mark.parametrize(
    ("pooling", "theirs"),
    [
        ("mean", "mean"),
        ("cls", "cls"),
        ("max", "max"),
        ("mean_sqrt_len", "mean_sqrt_len_tokens"),
        ("last", "lasttoken"),
        ("weighted_mean", "weightedmean"),
    ],
)
def test_poolings_dense_layers_and_norms_are_those_of_the_files(tmp_path, pooling, theirs):
    write_transformer(tmp_path / "plain", configs()["bert"])
    torch.manual_seed(1)
    modules = [Transformer(str(tmp_path / "plain")), Pooling(WIDTH, theirs), Dense(WIDTH, 24), Normalize()]
    reference = SentenceTransformer(modules=modules, device="cpu")
    reference.save(str(tmp_path / "saved"))
    facts = encoder_facts(
        "bert", dims=24, pooling=pooling, dense=(DenseFacts("2_Dense", "tanh"),), normalize=True, matryoshka=(8,)
    )
    runtime = opened(tmp_path / "saved", facts)
    expected = reference.encode(TEXTS)
    for found in in_three_ways(runtime, [Item(text) for text in TEXTS]):
        assert worst(found, expected) <= 1e-5
    short = reference.encode(TEXTS, truncate_dim=8, normalize_embeddings=True)
    assert worst(rows(runtime, [Item(text, dims=8) for text in TEXTS]), short) <= 1e-5
    (raw,) = rows(runtime, [Item("fish", normalize=False)])
    assert not np.isclose(np.linalg.norm(raw), 1, atol=1e-3)


def test_minilm_gives_the_vectors_of_sentence_transformers(minilm):
    texts = [*TEXTS, "Das Haus am See wurde 1923 gebaut – für 12.000 Mark.", "😀 emoji", "日本語のテキスト"]
    expected = SentenceTransformer(str(minilm.folder), device="cpu").encode(texts)
    for found in in_three_ways(opened(minilm.folder, minilm.facts), [Item(text) for text in texts]):
        assert worst(found, expected) <= 1e-5


def test_bf16_is_near_fp32_where_the_processor_has_it(minilm):
    runtime = opened(minilm.folder, minilm.facts, dtype="bf16")
    if runtime.profile.dtype != "bf16":
        pytest.skip("no bf16 on this processor")
    exact = rows(opened(minilm.folder, minilm.facts), [Item(text) for text in TEXTS])
    for found in in_three_ways(runtime, [Item(text) for text in TEXTS]):
        assert min(float(a @ b) for a, b in zip(found, exact, strict=True)) >= 0.999


@pytest.mark.parametrize("activation", ["identity", "sigmoid"])
def test_a_cross_encoder_gives_the_scores_of_sentence_transformers(tmp_path, activation):
    facts = tiny_reranker(tmp_path, activation=activation)
    reference = CrossEncoder(str(tmp_path), device="cpu")
    reference.max_seq_length = POSITIONS
    applied = torch.nn.Sigmoid() if activation == "sigmoid" else torch.nn.Identity()
    expected = reference.predict(PAIRS, activation_fn=applied)
    items = [Item(query, pair=document) for query, document in PAIRS]
    for found in in_three_ways(opened(tmp_path, facts), items, "score"):
        assert worst(found, expected) <= 1e-5


def test_a_classifier_with_several_labels_gives_a_logit_for_each(tmp_path):
    config = configs()["roberta"]
    config.num_labels = 3
    write_transformer(tmp_path, config, transformers.AutoModelForSequenceClassification)
    facts = msgspec.structs.replace(
        encoder_facts("roberta as it comes"), tasks=("score",), dims=0, labels=("no", "maybe", "yes")
    )
    reference = CrossEncoder(str(tmp_path), device="cpu")
    reference.max_seq_length = POSITIONS
    expected = reference.predict(PAIRS, activation_fn=torch.nn.Identity())
    items = [Item(query, pair=document) for query, document in PAIRS]
    for found in in_three_ways(opened(tmp_path, facts), items, "score"):
        assert worst(found, expected) <= 1e-5


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_sparse_vectors_are_those_of_sentence_transformers(tmp_path, pooling, activation):
    write_transformer(tmp_path / "plain", configs()["bert"], transformers.AutoModelForMaskedLM)
    modules = [
        Transformer(str(tmp_path / "plain"), transformer_task="fill-mask"),
        SpladePooling(pooling_strategy=pooling, activation_function=activation),
    ]
    reference = SparseEncoder(modules=modules, device="cpu")
    reference.save(str(tmp_path / "saved"))
    ours = {"relu": "log1p_relu", "log1p_relu": "log1p_log1p_relu"}[activation]
    facts = encoder_facts(
        "bert", dims=0, pooling="none", kinds=("sparse",), sparse=Sparse(pooling=pooling, activation=ours)
    )
    runtime = opened(tmp_path / "saved", facts)
    expected = reference.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    items = [Item(text, kinds=("sparse",)) for text in TEXTS]
    places, weights = (in_three_ways(runtime, items, f"sparse.{part}") for part in ("indices", "values"))
    for way in range(3):
        for indices, values, vector in zip(places[way], weights[way], expected, strict=True):
            dense = np.zeros_like(vector)
            dense[indices] = values
            assert np.allclose(dense, vector, rtol=1e-5, atol=1e-5)
            assert values.min() > 0


def test_token_vectors_are_those_of_sentence_transformers(tmp_path):
    write_transformer(tmp_path / "plain", configs()["bert"])
    torch.manual_seed(1)
    projection = Dense(WIDTH, 16, bias=False, activation_function=torch.nn.Identity(),
                       module_input_name="token_embeddings")  # fmt: skip
    backbone = Transformer(str(tmp_path / "plain"))
    reference = MultiVectorEncoder(
        modules=[backbone, projection, Normalize(module_input_name="token_embeddings")], device="cpu"
    )
    reference.save(str(tmp_path / "saved"))
    facts = encoder_facts(
        "bert", dims=0, pooling="none", kinds=("multivector",),
        multivector=MultiVector(dims=16, projection=(DenseFacts("1_Dense"),), expand=False, query_tokens=0),
    )  # fmt: skip
    runtime = opened(tmp_path / "saved", facts)
    expected = reference.encode_document(TEXTS, convert_to_numpy=True)
    items = [Item(text, kinds=("multivector",), is_query=False) for text in TEXTS]
    for found in in_three_ways(runtime, items, "multivector"):
        assert [len(vectors) for vectors in found] == [len(vectors) for vectors in expected]
        assert worst(found, expected) <= 1e-5


PACKED = ["bert", "roberta", "distilbert", "electra", "modernbert", "eurobert", "mistral", "gemma3_text", "qwen3"]


@pytest.mark.parametrize("family", PACKED)
def test_packed_texts_give_the_numbers_of_padded_ones(tmp_path, monkeypatch, family):
    """The kernel itself needs CUDA; what is tried here is everything around it."""
    write_transformer(tmp_path, configs()[family])
    facts = encoder_facts(f"{family} as it comes")
    items = [Item(text) for text in TEXTS]
    padded = opened(tmp_path, facts)
    monkeypatch.setattr(pytorch_packed, "has_kernel", lambda device, dtype: True)
    packed = opened(tmp_path, facts)
    batch = packed.prepare(items)
    assert packed.run(batch, 0).tokens == sum(p.tokens for p in batch) < padded.run(batch, 0).tokens
    expected = rows(padded, items)
    for found in in_three_ways(packed, items):
        assert worst(found, expected) <= 1e-5


@pytest.mark.parametrize("family", ["mpnet", "t5", "deberta-v2", "gemma2"])
def test_a_model_that_cannot_run_packed_is_padded_as_before(tmp_path, monkeypatch, family):
    write_transformer(tmp_path, configs()[family])
    facts = encoder_facts(f"{family} as it comes")
    expected = rows(opened(tmp_path, facts), [Item(text) for text in TEXTS])
    monkeypatch.setattr(pytorch_packed, "has_kernel", lambda device, dtype: True)
    assert worst(rows(opened(tmp_path, facts), [Item(text) for text in TEXTS]), expected) <= 1e-6


def test_a_device_that_is_not_here_is_replaced_by_the_processor(tmp_path):
    facts = tiny_encoder(tmp_path)
    runtime = opened(tmp_path, facts, device="cuda:7")
    assert runtime.profile.device == "cpu"
    best = opened(tmp_path, facts, device="auto").profile.device
    assert best == ("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), RuntimeError("can't allocate memory")],
    ids=["accelerator", "processor"],
)
def test_a_batch_that_is_too_large_for_the_device_is_halved_until_it_fits(tmp_path, monkeypatch, error):
    runtime = opened(tmp_path, tiny_encoder(tmp_path))
    transformer = runtime._encoder._transformer
    forward, seen = transformer.forward, []

    def small(features):
        seen.append(len(features["input_ids"]))
        if len(features["input_ids"]) > 2:
            raise error
        return forward(features)

    monkeypatch.setattr(transformer, "forward", small)
    batch = runtime.prepare([Item("fish")] * 8)
    with pytest.raises(MemoryError, match="8 items"):
        runtime.run(batch, 0)
    outputs, _ = compute(runtime, batch, 0, [""] * len(batch))
    assert [output.fault for output in outputs] == [None] * 8
    assert 8 in seen


def change(path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_with_code_of_its_own_is_refused_and_the_code_does_not_run(tmp_path):
    facts = tiny_encoder(tmp_path)
    (tmp_path / "modeling.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ModelLoadFailed, match=r"modeling\.py"):
        opened(tmp_path, facts)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_configuration_that_asks_for_code_is_refused(tmp_path, name):
    facts = tiny_encoder(tmp_path)
    change(tmp_path / name, auto_map={"AutoModel": "someone/else--modeling.Model"})
    with pytest.raises(ModelLoadFailed, match="auto_map"):
        opened(tmp_path, facts)


@pytest.mark.parametrize("kind", ["os.system", "modeling.Pooling", "sentence_transformers.util.http_get"])
def test_a_module_that_is_not_the_librarys_own_is_refused(tmp_path, kind):
    facts = tiny_encoder(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["type"] = kind
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelLoadFailed, match=kind):
        opened(tmp_path, facts)


def test_an_activation_that_is_not_the_librarys_own_is_refused(tmp_path):
    facts = tiny_reranker(tmp_path)
    change(tmp_path / "config.json", sentence_transformers={"activation_fn": "os.system"})
    with pytest.raises(ModelLoadFailed, match=r"os\.system"):
        opened(tmp_path, facts)


@pytest.mark.parametrize("where", [".", "1_Pooling"])
def test_pickled_weights_are_refused_unopened(tmp_path, where):
    facts = tiny_encoder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "kept")
    if where != ".":
        (tmp_path / "kept").rename(tmp_path / "model.safetensors")
    (tmp_path / where / "pytorch_model.bin").write_bytes(b"\x80\x04not opened")
    with pytest.raises(ModelLoadFailed, match=r"pytorch_model\.bin"):
        opened(tmp_path, facts)


def test_a_checkpoint_that_lacks_weights_is_refused_and_not_filled_with_random_ones(tmp_path):
    tiny_encoder(tmp_path / "encoder")
    facts = tiny_reranker(tmp_path / "reranker")
    with pytest.raises(ModelLoadFailed, match="lacks"):
        opened(tmp_path / "encoder", facts)


def test_more_tokens_than_the_model_has_places_for_are_refused_at_load(tmp_path):
    write_transformer(tmp_path, configs()["roberta"])
    facts = msgspec.structs.replace(encoder_facts("roberta as it comes"), max_tokens=POSITIONS + 1)
    with pytest.raises(ModelLoadFailed, match=f"{POSITIONS} positions"):
        opened(tmp_path, facts)


@pytest.mark.parametrize("family", ["electra", "t5", "qwen3"])
def test_a_folder_of_a_kind_that_is_not_built_in_is_added_by_its_files_and_served(tmp_path, family):
    write_transformer(tmp_path / "plain", FAMILIES[family])
    pooling = "lasttoken" if family == "qwen3" else "mean"
    modules = [Transformer(str(tmp_path / "plain")), Pooling(WIDTH, pooling), Normalize()]
    reference = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "fish: "})
    reference.save(str(tmp_path / "saved"))
    model = Store(tmp_path / "home").add(tmp_path / "saved", name="acme/odd")
    assert (model.facts.family, model.facts.max_tokens) == (family, POSITIONS)
    with serving(tmp_path / "home") as server, shoal.Client(server.url) as client:
        found = client.encode("acme/odd", TEXTS)
        queries = client.encode("acme/odd", TEXTS, is_query=True)
    assert worst(list(found), reference.encode(TEXTS)) <= 1e-5
    assert worst(list(queries), reference.encode(TEXTS, prompt_name="query")) <= 1e-5


WITHOUT = """
import sys
from pathlib import Path
import msgspec
sys.modules["torch"] = None
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.errors import ModelLoadFailed
from shoal.runtimes import open_runtime
try:
    open_runtime(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Facts), Profile(runtime="pytorch"))
except ModelLoadFailed as error:
    print(error.message)
"""
WITH = """
import sys
from pathlib import Path
import msgspec
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import open_runtime
calls = []
watched = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname", "urllib.Request")
sys.addaudithook(lambda event, args: calls.append((event, args)) if event in watched else None)
runtime = open_runtime(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Facts), Profile(runtime="pytorch"))
runtime.run(runtime.prepare([Item("fish")]), 0)
print(calls)
"""


@pytest.mark.parametrize(("script", "said"), [(WITHOUT, "pip install 'shoal[pytorch]'"), (WITH, "[]")])
def test_what_is_missing_is_named_and_nothing_is_asked_of_a_network(tmp_path, script, said):
    """In a process of its own, as a runtime lives in."""
    facts = msgspec.json.encode(tiny_encoder(tmp_path)).decode()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS"))
    }
    finished = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), facts], capture_output=True, text=True, env=environment,
        check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert said in finished.stdout
