"""Which published graphs are taken, and what is said of the others; what the builder needs."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item
from shoal.runtimes import open_runtime
from shoal.testing.checkpoints import WIDTH, tiny_encoder
from shoal.testing.graphs import published_encoder, published_reranker

ONNX = Profile(runtime="onnx")


def load(folder):
    return onnx.load(folder / "model.onnx")


def save(folder, model) -> None:
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def keep_table_in(folder, location: str) -> None:
    """Say that the table's numbers are to be read from another file."""
    model = load(folder)
    (table,) = [constant for constant in model.graph.initializer if constant.name == "table"]
    table.ClearField("raw_data")
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=location)
    save(folder, model)


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "model"
    return folder, published_encoder(folder)


def dense(folder, facts) -> np.ndarray:
    runtime = open_runtime(folder, facts, ONNX)
    return runtime.run(runtime.prepare([Item("fish swim")]), 0).rows[0]["dense"]


def test_a_sentence_embedding_in_the_graph_is_taken_as_it_is(tmp_path):
    facts = published_encoder(tmp_path)
    expected = dense(tmp_path, facts)
    model = load(tmp_path)
    axis = onnx.numpy_helper.from_array(np.array([1], np.int64), "axis")
    model.graph.initializer.append(axis)
    model.graph.node.append(
        helper.make_node("ReduceMean", ["states"], ["sentence_embedding"], axes=[1], keepdims=0)
    )
    vector = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, [None, WIDTH])
    model.graph.output.append(vector)
    save(tmp_path, model)
    assert np.allclose(dense(tmp_path, facts), expected, atol=1e-6)


def test_states_under_the_name_that_sentence_transformers_gives_them_are_pooled(tmp_path):
    usual, other = tmp_path / "usual", tmp_path / "other"
    expected = dense(usual, published_encoder(usual))
    assert np.allclose(dense(other, published_encoder(other, output="token_embeddings")), expected)


def test_a_graph_that_quantises_on_the_fly_says_int8_and_any_other_fp32(tmp_path):
    plain, quantised = tmp_path / "plain", tmp_path / "quantised"
    assert open_runtime(plain, published_encoder(plain), ONNX).profile.dtype == "fp32"
    assert open_runtime(quantised, published_encoder(quantised, quantised=True), ONNX).profile.dtype == "int8"


def test_where_neighbours_would_move_the_scale_a_text_gives_exactly_what_it_gives_alone(tmp_path):
    runtime = open_runtime(tmp_path, published_encoder(tmp_path, quantised=True), ONNX)
    batch = runtime.prepare([Item("fish"), Item("paris is the capital of france"), Item("small swim 42")])
    alone = [runtime.run([prepared], 0).rows[0]["dense"] for prepared in batch]
    assert np.array_equal(alone, [row["dense"] for row in runtime.run(batch, 0).rows])


def test_weights_in_another_file_of_the_models_folder_are_found(published):
    folder, facts = published
    expected = dense(folder, facts)
    (table,) = [constant for constant in load(folder).graph.initializer if constant.name == "table"]
    (folder / "model.onnx.data").write_bytes(table.raw_data)
    keep_table_in(folder, "model.onnx.data")
    assert np.array_equal(dense(folder, facts), expected)


@pytest.mark.parametrize("how", ["above", "absolute", "link"])
def test_weights_in_a_file_outside_the_models_folder_are_refused(published, how):
    folder, facts = published
    (table,) = [constant for constant in load(folder).graph.initializer if constant.name == "table"]
    secret = folder.parent / "secret"
    secret.write_bytes(table.raw_data)
    if how == "link":
        (folder / "inside").symlink_to(secret)
    keep_table_in(folder, {"above": "../secret", "absolute": str(secret), "link": "inside"}[how])
    with pytest.raises(ModelLoadFailed):
        open_runtime(folder, facts, ONNX)


def test_an_operator_that_the_engine_does_not_know_is_refused(published):
    folder, facts = published
    model = load(folder)
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    model.graph.node[-1].CopyFrom(helper.make_node("Run", ["states"], ["last_hidden_state"], domain="elsewhere"))
    save(folder, model)
    with pytest.raises(ModelLoadFailed):
        open_runtime(folder, facts, ONNX)


def test_an_input_that_we_cannot_fill_is_refused_by_name(published):
    folder, facts = published
    model = load(folder)
    model.graph.input.append(helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [None, 3]))
    save(folder, model)
    with pytest.raises(ModelLoadFailed, match="pixel_values"):
        open_runtime(folder, facts, ONNX)


def test_outputs_among_which_none_is_known_are_refused_by_name(tmp_path):
    facts = published_reranker(tmp_path)
    model = load(tmp_path)
    model.graph.output.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, None))
    for field in (model.graph.output[0], *model.graph.node):
        if field is model.graph.output[0]:
            field.name = "classes"
        elif "logits" in field.output:
            field.output[0] = "classes"
    save(tmp_path, model)
    with pytest.raises(ModelLoadFailed, match="classes"):
        open_runtime(tmp_path, facts, ONNX)


def test_a_graph_of_another_width_than_the_facts_say_fails_the_load(published):
    folder, facts = published
    wider = Facts(**{name: getattr(facts, name) for name in facts.__struct_fields__} | {"dims": WIDTH + 1})
    with pytest.raises(ModelLoadFailed, match=str(WIDTH)):
        open_runtime(folder, wider, ONNX)


@pytest.mark.parametrize("content", [None, b"", b"no graph"])
def test_a_graph_that_is_missing_or_broken_fails_the_load(published, content):
    folder, facts = published
    (folder / "model.onnx").unlink()
    if content is not None:
        (folder / "model.onnx").write_bytes(content)
    with pytest.raises(ModelLoadFailed):
        open_runtime(folder, facts, ONNX)


def test_without_the_onnx_package_a_build_says_how_to_get_it(tmp_path, monkeypatch):
    facts = tiny_encoder(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "shoal.runtimes.onnx_ops", raising=False)
    with pytest.raises(ModelLoadFailed, match=r"pip install 'shoal\[onnx\]'"):
        open_runtime(tmp_path, facts, ONNX)
