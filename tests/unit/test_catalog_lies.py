"""Model folders that say one thing in one file and another in the next are refused when they are added, with what
does not fit; none is left for the first request to find.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import module, write_encoder, write_json, write_scorer
from safetensors.numpy import load_file, save_file

from shoal.catalog.store import Store
from shoal.protocol.errors import InvalidInput

MODEL = "model.safetensors"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def change_json(path: Path, **values: Any) -> None:
    write_json(path, json.loads(path.read_text()) | values)


def change_weights(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    weights = load_file(folder / MODEL)
    change(weights)
    save_file(weights, folder / MODEL)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"num_hidden_layers": 0}, "0 as num_hidden_layers"),
        ({"num_hidden_layers": -1}, "-1 as num_hidden_layers"),
        ({"num_hidden_layers": True}, "True as num_hidden_layers"),
        ({"num_hidden_layers": 1.5}, r"1\.5 as num_hidden_layers"),
        ({"num_hidden_layers": None}, "does not say 'num_hidden_layers'"),
        ({"num_hidden_layers": 10**9}, "no weight named"),
        ({"num_attention_heads": 0}, "0 as num_attention_heads"),
        ({"num_attention_heads": "2"}, "'2' as num_attention_heads"),
        ({"num_attention_heads": 3}, "do not divide"),
        ({"vocab_size": 20}, "has the shape"),
        ({"vocab_size": None}, "does not say 'vocab_size'"),
        ({"type_vocab_size": -1}, "-1 as type_vocab_size"),
        ({"type_vocab_size": 1}, "has the shape"),
        ({"layer_norm_eps": "a"}, "what norms add"),
        ({"layer_norm_eps": -1}, "what norms add"),
        ({"max_position_embeddings": 100}, "has the shape"),
        ({"hidden_act": "mish"}, "activation 'mish'"),
        ({"is_decoder": True}, "a decoder"),
    ],
)
def test_a_config_that_its_weights_contradict_is_refused(
    store: Store, tmp_path: Path, said: dict[str, Any], reason: str
) -> None:
    folder = write_encoder(tmp_path / "m")
    change_json(folder / "config.json", **said)
    with pytest.raises(InvalidInput, match=reason):
        store.add(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w.pop("encoder.layer.0.output.dense.bias"), "no weight named"),
        (lambda w: w.update({"encoder.layer.0.output.dense.weight": np.zeros((8, 15), np.float32)}), "15 columns"),
        (lambda w: w.update({"encoder.layer.0.output.dense.weight": np.zeros((16, 8), np.float32)}), "the shape"),
        (lambda w: w.update({"encoder.layer.0.output.dense.bias": np.full(8, np.nan, np.float32)}), "not finite"),
        (lambda w: w.update({"embeddings.LayerNorm.weight": np.full(8, np.inf, np.float32)}), "not finite"),
        (lambda w: w.update({n: v.astype(np.int8) for n, v in w.items()}), "of dtype I8"),
    ],
)
def test_weights_that_do_not_fit_each_other_are_refused(
    store: Store, tmp_path: Path, change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    folder = write_encoder(tmp_path / "m")
    change_weights(folder, change)
    with pytest.raises(InvalidInput, match=reason):
        store.add(folder)


@pytest.mark.parametrize("weight", [np.zeros((16, 7), np.float32), np.zeros((15, 8), np.float32)])
def test_a_dense_layer_of_another_width_than_its_config_is_refused(
    store: Store, tmp_path: Path, weight: Any
) -> None:
    folder = write_encoder(tmp_path / "m")
    kinds = [module(0, "Transformer"), module(1, "Pooling", "1_Pooling"), module(2, "Dense", "2_Dense")]
    write_json(folder / "modules.json", kinds)
    write_json(folder / "2_Dense" / "config.json", {"in_features": 8, "out_features": 16})
    save_file({"linear.weight": weight}, folder / "2_Dense" / MODEL)
    with pytest.raises(InvalidInput, match=r"7 columns|of 15 numbers, and 16"):
        store.add(folder)


def test_more_labels_than_outputs_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="classifier"):
        store.add(write_scorer(tmp_path / "m", id2label={"0": "no", "1": "yes"}))
    with pytest.raises(InvalidInput, match="more than 10000 labels"):
        store.add(write_scorer(tmp_path / "n", id2label=None, num_labels=10**9))


def test_a_limit_that_leaves_no_room_for_a_text_is_refused(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    change_json(folder / "sentence_bert_config.json", max_seq_length=2)
    with pytest.raises(InvalidInput, match="not even one letter"):
        store.add(folder)


def change_tokenizer(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    change(tokenizer)
    write_json(folder / "tokenizer.json", tokenizer)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t["model"]["vocab"].update(zebra=900), "901 token ids"),
        (lambda t: t["post_processor"]["special_tokens"]["[CLS]"].update(ids=[9999]), "10000 token ids"),
        (lambda t: t["post_processor"]["single"][1]["Sequence"].update(type_id=7), "8 segments"),
        (lambda t: t["post_processor"]["single"][0]["SpecialToken"].update(type_id=2), "3 segments"),
        (lambda t: t.clear(), "cannot read"),
    ],
)
def test_a_tokenizer_that_says_what_the_model_has_no_rows_for_is_refused(
    store: Store, tmp_path: Path, change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    folder = write_encoder(tmp_path / "m")
    change_tokenizer(folder, change)
    with pytest.raises(InvalidInput, match=reason):
        store.add(folder)


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    added = change(header)
    written = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + data[8 + length :] + (added or b""))


def test_weights_that_share_bytes_are_refused(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")

    def overlap(header: dict[str, Any]) -> None:
        norm = "encoder.layer.0.output.LayerNorm"
        header[f"{norm}.bias"]["data_offsets"] = header[f"{norm}.weight"]["data_offsets"]

    rewrite_header(folder / MODEL, overlap)
    with pytest.raises(InvalidInput, match="lie over each other"):
        store.add(folder)


def test_a_tensor_that_nothing_asks_for_may_be_of_any_dtype(store: Store, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    change_weights(folder, lambda w: w.update(mask=np.ones(4, bool), table=np.ones(4, np.int16)))
    assert store.add(folder).facts.dims == 8


@pytest.mark.parametrize("length", [2**63, 10**9, 0])
def test_a_header_of_any_claimed_length_is_refused(store: Store, tmp_path: Path, length: int) -> None:
    folder = write_encoder(tmp_path / "m")
    (folder / MODEL).write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(InvalidInput, match="not a safetensors file"):
        store.add(folder)
