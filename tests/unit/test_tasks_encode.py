import numpy as np
import pytest

from shoal.protocol.errors import Fault, InvalidInput
from shoal.protocol.facts import Facts, MultiVector
from shoal.protocol.facts import Sparse as SparseFacts
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor
from shoal.tasks import all_tasks, task_named
from shoal.tasks.dtypes import cast
from shoal.tasks.encode import EncodeRequest, Text

PLAIN = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=256, dims=8)
E5 = Facts(
    tasks=("encode",),
    family="bert",
    files="safetensors",
    max_tokens=512,
    dims=8,
    matryoshka=(2, 4),
    prompts={"query": "query: ", "passage": "passage: "},
    default_prompt="passage",
)
SPLADE = Facts(
    tasks=("encode",), family="bert", files="safetensors", max_tokens=256, kinds=("sparse",), sparse=SparseFacts()
)
BGE_M3 = Facts(
    tasks=("encode", "score"),
    family="roberta",
    files="safetensors",
    max_tokens=8192,
    kinds=("dense", "sparse", "multivector"),
    dims=8,
    sparse=SparseFacts(),
    multivector=MultiVector(dims=3),
)
TASK = task_named("encode")


def texts(*given: str) -> list[Text]:
    return [Text(each) for each in given]


def split(facts: Facts = PLAIN, **asked: object) -> list[Item | Fault]:
    return TASK.split(EncodeRequest(**{"inputs": texts("hello")} | asked), facts)


def row(*values: float, tokens: int = 3, truncated: bool = False) -> Output:
    return Output({"dense": Tensor.of(np.array(values, np.float32))}, tokens=tokens, truncated=truncated)


def terms(weights: dict[int, float]) -> Output:
    tensors = {
        "sparse.indices": Tensor.of(np.array(list(weights), np.int32)),
        "sparse.values": Tensor.of(np.array(list(weights.values()), np.float32)),
    }
    return Output(tensors, tokens=3)


def three_kinds(dense: list[float], weights: dict[int, float], tokens: list[list[float]]) -> Output:
    tensors = row(*dense).tensors | terms(weights).tensors
    return Output(tensors | {"multivector": Tensor.of(np.array(tokens, np.float32).reshape(-1, 3))}, tokens=4)


def test_the_folder_is_the_registry():
    assert set(all_tasks()) >= {"encode", "score"}


def test_a_text_becomes_an_item_with_the_callers_choices():
    (item,) = split(E5, dims=4, normalize=False, truncate="error", is_query=True)
    assert item == Item("hello", prompt="query: ", dims=4, normalize=False, truncate="error", is_query=True)


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ({}, "passage: "),
        ({"is_query": True}, "query: "),
        ({"is_query": False}, "passage: "),
        ({"prompt": "query"}, "query: "),
        ({"prompt": "query", "is_query": False}, "query: "),
        ({"instruction": "Find: "}, "Find: "),
        ({"instruction": "Find: ", "prompt": "query"}, "Find: "),
    ],
)
def test_a_prompt_is_chosen_by_words_then_name_then_role_then_the_models_default(asked, prompt):
    assert split(E5, **asked)[0].prompt == prompt


def test_a_model_without_prompts_gets_none_whatever_the_role():
    assert [split(PLAIN, is_query=role)[0].prompt for role in (True, False, None)] == ["", "", ""]


def test_a_passage_prompt_may_be_called_document():
    facts = Facts(
        tasks=("encode",),
        family="bert",
        files="safetensors",
        max_tokens=9,
        dims=8,
        prompts={"document": "d: "},
    )
    assert split(facts, is_query=False)[0].prompt == "d: "


def test_an_unknown_prompt_is_refused_with_the_names_there_are():
    with pytest.raises(InvalidInput, match="passage, query"):
        split(E5, prompt="poem")


def test_widths_the_model_was_trained_for_pass_and_others_are_refused_by_name():
    assert [split(E5, dims=dims)[0].dims for dims in (0, 2, 4, 8)] == [0, 2, 4, 0]
    for dims in (1, 3, 9, 10**30):
        with pytest.raises(InvalidInput, match="2, 4, 8"):
            split(E5, dims=dims)
    with pytest.raises(InvalidInput, match="trained for 8"):
        split(PLAIN, dims=4)


def test_a_model_that_cannot_encode_says_what_it_can():
    facts = Facts(tasks=("score",), family="bert", files="onnx", max_tokens=9)
    with pytest.raises(InvalidInput, match="cannot encode; it can score"):
        split(facts)


def test_kinds_of_vector_it_does_not_give_are_refused_naming_those_it_gives():
    with pytest.raises(InvalidInput, match="gives dense vectors, not sparse"):
        split(PLAIN, kinds=("dense", "sparse"))
    with pytest.raises(InvalidInput, match="gives sparse vectors, not dense vectors or multivectors"):
        split(SPLADE, kinds=("dense", "sparse", "multivector"))


def test_without_kinds_an_item_asks_for_the_models_first_and_else_for_each_once():
    assert [split(facts)[0].kinds for facts in (PLAIN, SPLADE, BGE_M3)] == [("dense",), ("sparse",), ("dense",)]
    assert split(BGE_M3, kinds=("multivector", "dense", "multivector"))[0].kinds == ("multivector", "dense")


def test_dimensions_are_for_dense_vectors():
    assert split(BGE_M3, kinds=("sparse", "dense"), dims=8)[0].dims == 0
    with pytest.raises(InvalidInput, match="dimensions is for dense"):
        split(SPLADE, dims=4)


def test_a_prompt_for_a_purpose_is_used_where_the_model_has_it_and_missed_by_nobody():
    assert [split(facts, purpose="passage")[0].prompt for facts in (E5, PLAIN)] == ["passage: ", ""]
    assert split(E5, purpose="clustering")[0].prompt == "passage: "
    assert split(E5, purpose="passage", is_query=True)[0].prompt == "query: "


@pytest.mark.parametrize("nothing", ["", " ", "\n\t ", "\u3000", "\0", " \0 \0"])
def test_an_empty_text_gets_a_typed_fault_and_its_neighbours_an_item(nothing):
    first, second, third = split(inputs=texts("a", nothing, "b"))
    assert isinstance(first, Item)
    assert isinstance(third, Item)
    assert isinstance(second, Fault)
    assert second.code == "EMPTY_INPUT"


@pytest.mark.parametrize("nothing", [Text(""), Text(" \n"), Text(), Text(ids=[])])
def test_an_empty_text_is_an_empty_vector_where_only_a_sparse_one_is_asked_for(nothing):
    request = EncodeRequest(inputs=[nothing, Text("a")], kinds=("sparse",))
    known, item = TASK.split(request, BGE_M3)
    assert isinstance(item, Item)
    first, second = TASK.join(request, BGE_M3, [known, terms({7: 1.5, 3: 0.5})]).vectors
    assert (first.fault, first.sparse.indices.tolist(), first.sparse.values.tolist()) == (None, [], [])
    assert (first.sparse.indices.dtype.str, first.sparse.values.dtype.str) == ("<i4", "<f4")
    assert (second.sparse.indices.tolist(), second.sparse.values.tolist()) == ([7, 3], [1.5, 0.5])
    for kinds in (("dense",), ("multivector",), ("sparse", "dense")):
        assert split(BGE_M3, inputs=[nothing], kinds=kinds)[0].code == "EMPTY_INPUT"


def test_what_else_is_wrong_with_a_text_is_a_fault_for_a_sparse_vector_too():
    assert split(SPLADE, inputs=texts("broken \ud800"))[0].code == "INVALID_INPUT"
    fault = Fault("INVALID_INPUT", "a picture")
    assert split(SPLADE, inputs=[Text("", fault=fault)]) == [fault]


def test_an_input_without_text_is_empty():
    assert split(inputs=[Text()])[0].code == "EMPTY_INPUT"


def test_a_lone_surrogate_is_a_fault_and_other_odd_characters_are_text():
    good = ["nul \0 inside", "emoji 🐟", "\u202eright to left", "e\u0301"]
    *items, bad = split(inputs=texts(*good, "broken \ud800"))
    assert [item.text for item in items] == good
    assert bad.code == "INVALID_INPUT"
    assert "character 7" in bad.message


def test_token_ids_pass_as_they_are_without_the_models_prompt():
    assert split(E5, inputs=[Text(ids=[1, 2])]) == [Item(ids=[1, 2])]


@pytest.mark.parametrize("asked", [{"prompt": "query"}, {"is_query": True}, {"instruction": "x"}])
def test_a_prompt_asked_for_with_token_ids_is_refused(asked):
    with pytest.raises(InvalidInput, match="token ids"):
        split(E5, inputs=[Text(ids=[1, 2])], **asked)


def test_token_ids_outside_any_vocabulary_are_faults():
    empty, negative, huge = split(inputs=[Text(ids=[]), Text(ids=[3, -1]), Text(ids=[10**40])])
    assert (empty.code, negative.code, huge.code) == ("EMPTY_INPUT", "INVALID_INPUT", "INVALID_INPUT")


def test_outputs_are_joined_in_order_with_ids_counts_and_faults():
    request = EncodeRequest(inputs=[Text("a", id="x"), Text(""), Text("c")])
    fault = Fault("EMPTY_INPUT", "empty")
    outputs = [row(1, 2), Output(fault=fault), row(3, 4, tokens=7, truncated=True)]
    response = TASK.join(request, PLAIN, outputs)
    assert (response.dims, response.tokens, response.truncated) == (2, 10, 1)
    assert [vector.id for vector in response.vectors] == ["x", None, None]
    assert response.vectors[0].dense.tolist() == [1, 2]
    assert response.vectors[1].fault == fault
    assert response.vectors[1].dense is None
    assert response.vectors[2].dense.tolist() == [3, 4]


def test_when_everything_failed_the_width_is_still_known():
    response = TASK.join(EncodeRequest(inputs=texts("")), PLAIN, [Output(fault=Fault("EMPTY_INPUT", "e"))])
    assert (response.dims, response.vectors[0].dense) == (8, None)


def test_float_dtypes_are_casts():
    rows = np.array([[0.5, -1.0]], np.float32)
    assert cast(rows, "float32").dtype.str == "<f4"
    assert cast(rows, "float16").dtype.str == "<f2"
    assert cast(rows, "float16").tolist() == [[0.5, -1.0]]


def test_int8_puts_each_rows_largest_magnitude_at_127():
    rows = np.array([[0.5, -1.0, 0.25], [0.2, 0.1, 0.0], [0, 0, 0]], np.float32)
    assert cast(rows, "int8").tolist() == [[64, -127, 32], [127, 64, 0], [0, 0, 0]]
    assert cast(rows, "int8").dtype.str == "|i1"


def test_uint8_spreads_each_row_from_0_to_255_and_a_constant_row_is_128():
    rows = np.array([[-1.0, 0.0, 1.0], [3, 3, 3]], np.float32)
    assert cast(rows, "uint8").tolist() == [[0, 128, 255], [128, 128, 128]]


def test_binary_packs_the_signs_first_component_in_the_highest_bit():
    rows = np.array([[1, -1, 0, 2, -1, -1, -1, 0.1, 5]], np.float32)
    for dtype in ("binary", "ubinary"):
        assert cast(rows, dtype).tolist() == [[0b10010001, 0b10000000]]
    response = TASK.join(EncodeRequest(inputs=texts("a"), dtype="binary"), PLAIN, [row(*rows[0])])
    assert response.dims == 9


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "binary"])
def test_extreme_but_finite_vectors_stay_finite(dtype):
    rows = np.array([[3e38, -3e38, 0.0], [1e-44, 0.0, -1e-44]], np.float32)
    got = cast(rows, dtype)
    assert np.isfinite(got.astype(np.float32)).all()
    if dtype == "int8":
        assert got.tolist() == [[127, -127, 0], [127, 0, -127]]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_vectors_keep_their_direction(dtype):
    rows = np.random.default_rng(1).standard_normal((16, 384)).astype(np.float32)
    got = cast(rows, dtype).astype(np.float32)
    if dtype == "uint8":
        low, high = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
        got = got / 255 * (high - low) + low
    cosine = (got * rows).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(rows, axis=1)
    assert cosine.min() > 0.9995


def test_every_kind_asked_for_is_joined_in_its_place_around_a_fault():
    request = EncodeRequest(inputs=texts("a", "", "c"), kinds=("dense", "sparse", "multivector"))
    outputs = [
        three_kinds([1, 2], {5: 1.0}, [[1, 0, 0], [0, 1, 0]]),
        Output(fault=Fault("EMPTY_INPUT", "empty")),
        three_kinds([3, 4], {6: 2.0, 9: 3.0}, [[0, 0, 1]]),
    ]
    response = TASK.join(request, BGE_M3, outputs)
    first, second, third = response.vectors
    assert (response.dims, response.token_dims, response.tokens) == (2, 3, 8)
    assert first.dense.tolist() == [1, 2]
    assert first.sparse.indices.tolist() == [5]
    assert first.multivector.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert (second.dense, second.sparse, second.multivector) == (None, None, None)
    assert third.sparse.values.tolist() == [2, 3]
    assert third.multivector.shape == (1, 3)


def test_only_the_kinds_asked_for_are_joined():
    request = EncodeRequest(inputs=texts("a"), kinds=("multivector",))
    vector = TASK.join(request, BGE_M3, [three_kinds([1], {1: 1.0}, [[1, 2, 3]])]).vectors[0]
    assert (vector.dense, vector.sparse) == (None, None)
    assert vector.multivector.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("dtype", "values", "width"),
    [("float16", [[1, -2, 0.5]], 3), ("int8", [[64, -127, 32]], 3), ("ubinary", [[0b10100000]], 3)],
)
def test_multivectors_are_cast_token_by_token(dtype, values, width):
    request = EncodeRequest(inputs=texts("a"), kinds=("multivector", "sparse"), dtype=dtype)
    response = TASK.join(request, BGE_M3, [three_kinds([1], {1: 9.0}, [[1, -2, 0.5]])])
    assert response.vectors[0].multivector.tolist() == values
    assert response.token_dims == width


def test_sparse_values_are_float16_where_asked_for_and_float32_beside_any_other_dtype():
    for dtype, expected in (("float16", "<f2"), ("float32", "<f4"), ("int8", "<f4"), ("binary", "<f4")):
        request = EncodeRequest(inputs=texts("a"), kinds=("dense", "sparse"), dtype=dtype)
        vector = TASK.join(request, BGE_M3, [three_kinds([1, -1], {1: 9.0}, [])]).vectors[0]
        assert vector.sparse.values.dtype.str == expected
        assert vector.sparse.indices.dtype.str == "<i4"
    with pytest.raises(InvalidInput, match="float32 or float16, not int8"):
        split(SPLADE, dtype="int8")


def test_a_text_whose_tokens_all_have_no_vector_has_a_multivector_of_no_rows():
    for dtype in ("float32", "float16", "int8", "uint8"):
        request = EncodeRequest(inputs=texts("..."), kinds=("multivector",), dtype=dtype)
        assert TASK.join(request, BGE_M3, [three_kinds([1], {}, [])]).vectors[0].multivector.shape == (0, 3)
