"""Reading LoRA adapters: what is taken from PEFT's two files, and everything that is refused with its reason."""

import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shoal.families.lora import MAX_RANK, WEIGHTS, read_adapter, read_config
from shoal.protocol.errors import ModelLoadFailed
from shoal.testing.adapters import linears, write_adapter
from shoal.testing.checkpoints import WIDTH, tiny_encoder, tiny_reranker

QUERY = "encoder.layer.0.attention.self.query"
KEY = f"base_model.model.{QUERY}.lora_"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_encoder(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def sites(base: Path) -> dict[str, tuple[int, int]]:
    return dict(linears(base))


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file(change(tensors) or tensors, folder / WEIGHTS)


def renamed(tensors, old: str, new: str):
    return {name.replace(old, new): tensor for name, tensor in tensors.items()}


def test_the_factors_of_every_layer_come_back_with_the_scale_in_b(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base, rank=4, alpha=6)
    tensors = load_file(folder / WEIGHTS)
    found = read_adapter(folder, sites)
    assert set(found) == {name for name in sites if ".layer." in name}
    for name, factors in found.items():
        a, b = (tensors[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
        assert factors.rank == 4
        assert factors.a.dtype == factors.b.dtype == np.float32
        assert np.array_equal(factors.a, a)
        assert np.allclose(factors.b, b * 6 / 4, rtol=1e-6)


def test_the_scale_of_rslora_is_by_the_root_of_the_rank(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base, targets=["query"], rank=4, alpha=6, use_rslora=True)
    b = load_file(folder / WEIGHTS)[f"{KEY}B.weight"]
    assert np.allclose(read_adapter(folder, sites)[QUERY].b, b * 6 / math.sqrt(4), rtol=1e-6)


@pytest.mark.parametrize(
    "key", ["query", QUERY, f"^{QUERY}", r"layer\.0\..*query", r"layer.\d+.attention.self.query$", "[0-1].*.query"]
)
def test_a_layer_may_have_a_rank_and_an_alpha_of_its_own_by_name_or_pattern(tmp_path, base, sites, key):
    folder = write_adapter(tmp_path / "a", base, targets=["query"], rank=4)
    said = {"r": 8, "rank_pattern": {"nothing": 3, key: 4}, "alpha_pattern": {key: 2}}
    if "\\d" not in key and "0-1" not in key and key != "query":  # layer 1 is as the rest of the file says
        rewrite(folder, lambda tensors: {name: t for name, t in tensors.items() if "layer.0" in name})
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | said))
    found = read_adapter(folder, sites)[QUERY]
    assert found.rank == 4
    assert np.allclose(found.b, load_file(folder / WEIGHTS)[f"{KEY}B.weight"] * 2 / 4, rtol=1e-6)


def test_half_precision_factors_are_read_as_fp32(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base, targets=["query"])
    rewrite(folder, lambda tensors: {name: tensor.astype(np.float16) for name, tensor in tensors.items()})
    found = read_adapter(folder, sites)[QUERY]
    assert found.a.dtype == np.float32
    assert np.array_equal(found.a, load_file(folder / WEIGHTS)[f"{KEY}A.weight"].astype(np.float32))


@pytest.mark.parametrize(
    "prefix",
    ["base_model.model.", "", "base_model.model.bert.", "base_model.model.0.auto_model.", "model.roberta."],
)
def test_a_prefix_that_the_trained_model_had_makes_no_difference(tmp_path, base, sites, prefix):
    folder = write_adapter(tmp_path / "a", base)
    expected = read_adapter(folder, sites)
    rewrite(folder, lambda tensors: renamed(tensors, "base_model.model.", prefix))
    found = read_adapter(folder, sites)
    assert set(found) == set(expected)
    assert all(np.array_equal(found[name].b, expected[name].b) for name in found)


def test_an_encoders_adapter_fits_a_base_whose_names_have_a_prefix(tmp_path, base):
    tiny_reranker(tmp_path / "reranker")
    folder = write_adapter(tmp_path / "a", base, targets=["query"])
    found = read_adapter(folder, dict(linears(tmp_path / "reranker")))
    assert set(found) == {f"bert.encoder.layer.{i}.attention.self.query" for i in (0, 1)}


def test_factors_of_a_pooler_that_the_base_does_not_use_are_left_out(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base, target_modules="all-linear")
    expected = read_adapter(folder, sites)
    name = "base_model.model.pooler.dense.lora_"
    pooler = {
        f"{name}{side}.weight": np.ones(shape, np.float32) for side, shape in (("A", (8, 32)), ("B", (32, 8)))
    }
    rewrite(folder, lambda tensors: tensors | pooler)
    assert read_adapter(folder, sites).keys() == expected.keys()
    assert "pooler.dense" in read_adapter(folder, sites | {"pooler.dense": (WIDTH, WIDTH)})
    save_file(pooler, folder / WEIGHTS)
    with pytest.raises(ModelLoadFailed, match="holds no factors"):
        read_adapter(folder, sites)


@pytest.mark.parametrize("prefix", ["", "nomic_bert."])
def test_layers_that_transformers_splits_or_renames_are_known_by_both_names(tmp_path, base, prefix):
    """Nomic's and GTE's: an adapter of three parts is one of the whole, and the other way round."""
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 8)).astype(np.float32)
    joined = {f"{prefix}encoder.layers.0.attn.Wqkv": (24, 8), f"{prefix}encoder.layers.0.mlp.fc2": (8, 16)}
    split = {f"{prefix}layers.0.self_attn.{part}_proj": (8, 8) for part in "qkv"}
    split[f"{prefix}layers.0.mlp.down_proj"] = (8, 16)

    def write(name: str, sites) -> Path:
        tensors = {}
        for site, (rows, columns) in sites.items():
            tensors[f"base_model.model.{site}.lora_A.weight"] = random.standard_normal((2, columns))
            tensors[f"base_model.model.{site}.lora_B.weight"] = random.standard_normal((rows, 2))
        folder = write_adapter(tmp_path / name, base, rank=2, target_modules="all-linear")
        save_file({key: value.astype(np.float32) for key, value in tensors.items()}, folder / WEIGHTS)
        return folder

    def added(factors, site: str):
        return x @ factors[site].a.T @ factors[site].b.T

    whole, queries = next(iter(joined)), next(iter(split))
    of_whole, of_parts = write("whole", joined), write("parts", split)
    for folder, rank in ((of_whole, 2), (of_parts, 6)):
        by_whole, by_parts = read_adapter(folder, joined), read_adapter(folder, split)
        assert (set(by_whole), set(by_parts)) == (set(joined), set(split))
        assert by_whole[whole].rank == rank
        parts = np.concatenate([added(by_parts, queries.replace("q_proj", f"{p}_proj")) for p in "qkv"], 1)
        assert np.allclose(added(by_whole, whole), parts, atol=1e-5)
    only = {name: t for name, t in load_file(of_parts / WEIGHTS).items() if "v_proj" in name}
    save_file(only, of_parts / WEIGHTS)
    alone = added(read_adapter(of_parts, joined), whole)
    assert not alone[:, :16].any()
    assert np.allclose(alone[:, 16:], added(read_adapter(of_parts, split), queries.replace("q_proj", "v_proj")))
    save_file(only | load_file(of_whole / WEIGHTS), of_parts / WEIGHTS)
    with pytest.raises(ModelLoadFailed, match="under two names"):
        read_adapter(of_parts, joined)


def test_the_cheap_check_says_what_the_adapter_is(tmp_path, base):
    folder = write_adapter(
        tmp_path / "a", base, rank=4, alpha=2, use_rslora=True, base_model_name_or_path="org/name",
        target_modules="all-linear", fan_in_fan_out=True, lora_dropout=0.1, layers_to_transform=[0],
    )  # fmt: skip
    config = read_config(folder)
    assert (config.rank, config.alpha, config.rslora) == (4, 2.0, True)
    assert (config.base, config.targets) == ("org/name", "all-linear")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"peft_type": "IA3"}, "of the type LORA; .* 'IA3'"),
        ({"peft_type": None}, "of the type LORA"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"bias": ["all"]}, "bias is"),
        ({"modules_to_save": ["classifier"]}, "modules_to_save asks for whole layers"),
        ({"use_dora": True}, "use_dora asks for DoRA's magnitudes"),
        ({"lora_bias": True}, "lora_bias asks for biases"),
        ({"layer_replication": [[0, 1]]}, "layer_replication asks for"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices asks for rows"),
        ({"target_parameters": ["experts.w"]}, "target_parameters asks for"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens asks for"),
        ({"use_qalora": True}, "use_qalora asks for"),
        ({"use_magic": {"a": 1}}, "'use_magic' is not known here"),
        ({"init_lora_weights": "pissa_niter_4"}, "'pissa_niter_4' changed the base"),
        ({"init_lora_weights": ["olora"]}, "changed the base"),
        ({"r": 0}, "r is 0, not a whole number from 1 to 256"),
        ({"r": -8}, "r is -8"),
        ({"r": True}, "r is True"),
        ({"r": 8.0}, r"r is 8\.0"),
        ({"r": None}, "r is None"),
        ({"r": MAX_RANK + 1}, "r is 257, over the limit of 256; MAX_RANK"),
        ({"r": 10**300}, "over the limit of 256"),
        ({"rank_pattern": {"query": 512}}, r"rank_pattern\['query'\] is 512, over the limit"),
        ({"lora_alpha": "16"}, "lora_alpha is '16', not a number"),
        ({"lora_alpha": True}, "lora_alpha is True"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"lora_alpha": float("inf")}, "lora_alpha is inf"),
        ({"lora_alpha": 10**400}, "lora_alpha is 1000"),
        ({"alpha_pattern": {"query": None}}, r"alpha_pattern\['query'\] is None"),
        ({"alpha_pattern": [1]}, "alpha_pattern is not a table"),
        ({"use_rslora": "yes"}, "use_rslora is 'yes'"),
        ({"target_modules": []}, "target_modules names no layers"),
        ({"target_modules": None}, "target_modules names no layers"),
        ({"target_modules": [1]}, "target_modules names no layers"),
        ({"target_modules": ["key"]}, "target_modules does not name it"),
        ({"rank_pattern": {"(a+)+$": 4}}, "has the key"),
        ({"rank_pattern": {"a*b*c*": 4}}, "at most two"),
        ({"rank_pattern": {"[z-a]": 4}}, "has the key"),
        ({"rank_pattern": {"": 4}}, "has the key"),
        ({"rank_pattern": {f"a{i}.*": 4 for i in range(17)}}, "over 16 with"),
        ({"rank_pattern": {"\ud800": 4}}, "has the key"),
        ({"r": 4}, r"has the shape \(8, 32\); its rank and the base ask for \(4, 32\)"),
        ({"rank_pattern": {"query": 4}}, r"has the shape \(8, 32\)"),
        ({"lora_alpha": 1e6}, None),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_with_what_it_says(tmp_path, base, sites, said, reason):
    folder = write_adapter(tmp_path / "a", base, targets=["query"], **said)
    if reason is None:
        assert read_adapter(folder, sites)
        return
    with pytest.raises(ModelLoadFailed, match=reason) as refused:
        read_adapter(folder, sites)
    refused.value.message.encode()


def nothing(tensors):
    return {}


def one_value(value: float, side: str):
    def change(tensors):
        tensors[f"{KEY}{side}.weight"][0, 0] = value

    return change


def without_b(tensors):
    del tensors[f"{KEY}B.weight"]


def without_a(tensors):
    del tensors[f"{KEY}A.weight"]


def with_also(name: str, *shape: int):
    def change(tensors):
        tensors[name] = np.ones(shape, np.float32)

    return change


def a_layer_too_many(tensors):
    return renamed(tensors, "layer.1", "layer.7")


def narrower(tensors):
    return {name: tensor[:, :16].copy() if "lora_A" in name else tensor for name, tensor in tensors.items()}


def transposed(tensors):
    return {name: np.ascontiguousarray(tensor.T) for name, tensor in tensors.items()}


def flat(tensors):
    return {name: tensor.reshape(-1) for name, tensor in tensors.items()}


def in_double(tensors):
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items()}


def in_whole_numbers(tensors):
    return {name: tensor.astype(np.int8) for name, tensor in tensors.items()}


def huge(tensors):
    tensors[f"{KEY}B.weight"][:] = 3e38


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (nothing, "holds no factors"),
        (one_value(np.nan, "A"), f"lora_A of layer '{QUERY}' has values that are not finite"),
        (one_value(np.inf, "B"), f"lora_B of layer '{QUERY}' has values that are not finite"),
        (huge, "times its scale, alpha 16.0, is not finite"),
        (without_b, f"'{QUERY}' has lora_A and no lora_B"),
        (without_a, f"'{QUERY}' has lora_B and no lora_A"),
        (a_layer_too_many, "layer.7.* no linear layer of this name"),
        (narrower, r"has the shape \(8, 16\)"),
        (transposed, "has the shape"),
        (flat, "has the shape"),
        (in_double, "is of dtype <f8|is of dtype float64"),
        (in_whole_numbers, "is of dtype I8"),
        (with_also("base_model.model.classifier.modules_to_save.weight", 2, WIDTH), "is no factor"),
        (with_also(f"{KEY}magnitude_vector", WIDTH), "is no factor"),
        (with_also("base_model.model.embeddings.word_embeddings.lora_embedding_A", 8, 60), "is no factor"),
        (with_also(f"base_model.model.{QUERY}.weight", WIDTH, WIDTH), "is no factor"),
        (with_also(f"{KEY}A.bias", WIDTH), "is no factor"),
        (with_also(f"base_model.model.bert.{QUERY}.lora_A.weight", 8, WIDTH), "another one is there"),
        (with_also(f"{KEY}A.default.weight", 8, WIDTH), "another one is there"),
        (with_also("base_model.model.query.lora_A.weight", 8, WIDTH), "no linear layer"),
        (with_also(f"base_model.model.3.9.{QUERY}.lora_A.weight", 8, WIDTH), "no linear layer"),
        (with_also("x" * 5000, 1), "is no factor"),
        (with_also("a\nb.lora_A.weight", 1), "is no factor"),
    ],
)
def test_every_tensor_has_to_be_a_factor_of_the_bases_own_layers(tmp_path, base, sites, change, reason):
    folder = write_adapter(tmp_path / "a", base, targets=["query"])
    rewrite(folder, change) if change is not nothing else save_file({}, folder / WEIGHTS)
    with pytest.raises(ModelLoadFailed, match=reason) as refused:
        read_adapter(folder, sites)
    assert len(refused.value.message) < 600


def test_a_tensor_of_gigabytes_is_refused_by_its_shape_and_not_read(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base, targets=["query"])
    rows = 2**30 // WIDTH
    told = json.dumps({f"{KEY}A.weight": {"dtype": "F16", "shape": [rows, WIDTH], "data_offsets": [0, 2**31]}})
    with (folder / WEIGHTS).open("wb") as file:
        file.write(len(told).to_bytes(8, "little") + told.encode())
        file.truncate(8 + len(told) + 2**31)
    tracemalloc.start()
    try:
        with pytest.raises(ModelLoadFailed, match="has lora_A and no lora_B"):
            read_adapter(folder, sites)
        said = json.loads(told) | {f"{KEY}B.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
        told = json.dumps(said)
        with (folder / WEIGHTS).open("r+b") as file:
            file.write(len(told).to_bytes(8, "little") + told.encode())
            file.truncate(8 + len(told) + 2**31)
        with pytest.raises(ModelLoadFailed, match=rf"has the shape \({rows}, {WIDTH}\)"):
            read_adapter(folder, sites)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
        (folder / WEIGHTS).unlink()


def test_pickled_factors_are_never_read(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base)
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(ModelLoadFailed, match=r"adapter_model\.bin is a pickle"):
        read_adapter(folder, sites)


def test_a_folder_without_one_of_the_two_files_says_which(tmp_path, base, sites):
    folder = write_adapter(tmp_path / "a", base)
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelLoadFailed, match=WEIGHTS):
        read_adapter(folder, sites)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(ModelLoadFailed, match=r"adapter_config\.json"):
        read_config(folder)


def test_a_config_of_a_gigabyte_is_not_read(tmp_path, base):
    folder = write_adapter(tmp_path / "a", base)
    with (folder / "adapter_config.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ModelLoadFailed, match="1073741824 bytes, over the limit of 1048576"):
        read_config(folder)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"r": ' * 50_000, b"9" * 5000])
def test_a_config_that_is_no_json_object_is_refused(tmp_path, base, raw):
    folder = write_adapter(tmp_path / "a", base)
    (folder / "adapter_config.json").write_bytes(raw)
    with pytest.raises(ModelLoadFailed, match=r"adapter_config\.json"):
        read_config(folder)
