"""Reading checkpoints: names, dtypes, and files that are not what they say."""

import json
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed


def checkpoint(folder, weights) -> Checkpoint:
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text('{"hidden_size": 4}')
    return Checkpoint(folder)


def write_raw(folder, header: object, data: bytes = b"") -> None:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    (folder / "config.json").write_text("{}")


def test_weights_come_back_as_they_were_written(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = checkpoint(tmp_path, {"a.weight": values, "b.weight": 2 * values}).weight("b.weight", 2, 3)
    assert np.array_equal(found, 2 * values)


@pytest.mark.parametrize(
    ("prefix", "kind"), [("", "word"), ("bert.", "word"), ("any.thing.", "word"), ("m.", "tok")]
)
def test_what_stands_before_the_words_table_and_the_old_names_of_norms_make_no_difference(tmp_path, prefix, kind):
    ones = np.ones(3, np.float32)
    weights = {
        f"{prefix}embeddings.{kind}_embeddings.weight": np.ones((5, 3), np.float32),
        f"{prefix}encoder.LayerNorm.gamma": ones,
        f"{prefix}encoder.LayerNorm.beta": 2 * ones,
        "classifier.weight": 3 * ones,
    }
    found = checkpoint(tmp_path, weights)
    assert np.array_equal(found.weight("encoder.LayerNorm.weight", 3), ones)
    assert np.array_equal(found.weight("encoder.LayerNorm.bias", 3), 2 * ones)
    assert np.array_equal(found.weight("classifier.weight", 3), 3 * ones)
    assert found.weight(f"embeddings.{kind}_embeddings.weight", 5, 3).shape == (5, 3)


def test_half_precision_weights_are_read_as_fp32(tmp_path):
    values = np.array([1.5, -2.0, 0.15625], np.float32)
    half = checkpoint(tmp_path, {"w": values.astype(np.float16)}).weight("w", 3)
    assert half.dtype == np.float32
    assert np.array_equal(half, values)


def test_bfloat16_weights_are_read_as_fp32(tmp_path):
    values = np.array([1.5, -2.0, 0.15625], np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    write_raw(tmp_path, {"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}, bits)
    assert np.array_equal(Checkpoint(tmp_path).weight("w", 3), values)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_rows_of_a_table_are_looked_up_in_its_file_and_come_as_fp32(tmp_path, dtype):
    values = np.array([[1.5, -2.0], [0.15625, 3.0], [-1.0, 0.5]], np.float32)
    bits = {
        "F32": values.tobytes(),
        "F16": values.astype(np.float16).tobytes(),
        "BF16": (values.view(np.uint32) >> 16).astype("<u2").tobytes(),
    }[dtype]
    write_raw(tmp_path, {"w": {"dtype": dtype, "shape": [3, 2], "data_offsets": [0, len(bits)]}}, bits)
    table = Checkpoint(tmp_path).table("w", -1, 2)
    assert table.shape == (3, 2)
    found = table.take(np.array([2, 0, 2]))
    assert found.dtype == np.float32
    assert np.array_equal(found, values[[2, 0, 2]])


def test_looking_up_rows_of_a_large_half_precision_table_takes_no_memory_for_the_others(tmp_path):
    save_file({"w": np.zeros((100_000, 64), np.float16)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    tracemalloc.start()
    try:
        rows = Checkpoint(tmp_path).table("w", 100_000, 64).take(np.arange(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows.shape == (100, 64)
    assert peak < 1_000_000


def write_shards(folder, places: object, **files: dict[str, np.ndarray]) -> None:
    for name, weights in files.items():
        save_file(weights, folder / f"{name}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "config.json").write_text("{}")


def test_weights_in_shards_are_read_as_if_they_were_in_one_file(tmp_path):
    ones = np.ones((2, 3), np.float32)
    first, second = "model-00001-of-00002", "model-00002-of-00002"
    words, norm = "bert.embeddings.word_embeddings.weight", "bert.encoder.LayerNorm.gamma"
    files = {first: {words: ones}, second: {norm: 2 * ones[0]}}
    write_shards(tmp_path, {words: f"{first}.safetensors", norm: f"{second}.safetensors"}, **files)
    found = Checkpoint(tmp_path)
    assert np.array_equal(found.table("embeddings.word_embeddings.weight", 2, 3).take(np.array([1])), ones[:1])
    assert np.array_equal(found.weight("encoder.LayerNorm.weight", 3), 2 * ones[0])


def test_one_file_wins_over_an_index_left_beside_it(tmp_path):
    write_shards(tmp_path, {"w": "gone.safetensors"}, model={"w": np.ones(3, np.float32)})
    assert np.array_equal(Checkpoint(tmp_path).weight("w", 3), np.ones(3))


@pytest.mark.parametrize(
    "places",
    [{}, [], None, {"w": "../secret.safetensors"}, {"w": "/secret.safetensors"}, {"w": "w.bin"}, {"w": []}],
)
def test_an_index_that_names_no_files_of_the_folder_fails_the_load(tmp_path, places):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": np.ones(3, np.float32)}, tmp_path / "secret.safetensors")
    write_shards(folder, places)
    with pytest.raises(ModelLoadFailed, match=r"index\.json"):
        Checkpoint(folder)


def test_a_shard_that_is_missing_fails_the_load_by_name(tmp_path):
    write_shards(tmp_path, {"w": "model-00001-of-00001.safetensors"})
    with pytest.raises(ModelLoadFailed, match="model-00001-of-00001"):
        Checkpoint(tmp_path)


def test_writing_into_a_weight_leaves_the_file_alone(tmp_path):
    found = checkpoint(tmp_path, {"w": np.zeros(3, np.float32)})
    found.weight("w", 3)[:] = 1
    assert np.array_equal(Checkpoint(tmp_path).weight("w", 3), np.zeros(3))


def test_a_missing_weight_or_another_shape_fails_the_load_by_name(tmp_path):
    found = checkpoint(tmp_path, {"w": np.zeros((2, 3), np.float32)})
    assert found.weight("w", -1, 3).shape == (2, 3)
    with pytest.raises(ModelLoadFailed, match=r"'w'.*\(2, 3\)"):
        found.weight("w", 3, 2)
    with pytest.raises(ModelLoadFailed, match="'w'"):
        found.weight("w", 6)
    with pytest.raises(ModelLoadFailed, match="'v'"):
        found.weight("v", 3)


def test_a_setting_that_config_does_not_say_fails_the_load_by_name(tmp_path):
    found = checkpoint(tmp_path, {"w": np.zeros(3, np.float32)})
    assert found.setting("hidden_size") == 4
    assert found.setting("layer_norm_eps", 1e-12) == 1e-12
    found.config["layer_norm_eps"] = None
    assert found.setting("layer_norm_eps", 1e-12) == 1e-12
    with pytest.raises(ModelLoadFailed, match="num_hidden_layers"):
        found.setting("num_hidden_layers")


def entry(**changes: object) -> dict[str, object]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        entry(shape=[3]),
        entry(shape=[-2]),
        entry(data_offsets=[0, 16]),
        entry(data_offsets=[-8, 0]),
        entry(data_offsets=[0]),
        entry(data_offsets="08"),
        entry(more=1),
        {"w": None},
        {"w": {"dtype": "F32"}},
    ],
)
def test_a_malformed_header_fails_the_load(tmp_path, header):
    write_raw(tmp_path, header, bytes(8))
    with pytest.raises(ModelLoadFailed, match=r"model\.safetensors"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x00" * 4, (10**9).to_bytes(8, "little") + b"{}"])
def test_a_truncated_file_fails_the_load(tmp_path, content):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelLoadFailed, match=r"model\.safetensors"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("content", [None, "{", "[]", "\xff"])
def test_a_config_that_is_missing_or_broken_fails_the_load(tmp_path, content):
    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    if content is not None:
        (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ModelLoadFailed, match=r"config\.json"):
        Checkpoint(tmp_path)


def test_a_dtype_that_is_not_known_fails_where_it_is_asked_for(tmp_path):
    write_raw(tmp_path, {"odd": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, bytes(8))
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(ModelLoadFailed, match="'odd' is of dtype F8_E4M3; known: F64"):
        checkpoint.weight("odd", 8)


@pytest.mark.parametrize("said", [0, -1, True, 2.0, "2", [2]])
def test_a_count_that_is_none_is_refused(tmp_path, said):
    write_raw(tmp_path, {}, b"")
    (tmp_path / "config.json").write_text(json.dumps({"layers": said}))
    with pytest.raises(ModelLoadFailed, match="as layers, not a whole number from 1"):
        Checkpoint(tmp_path).count("layers")
