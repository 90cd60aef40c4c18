"""What is put on top of an encoder: read from files, looked up, and computed outside a graph that lacks it."""

import json

import msgspec
import numpy as np
import pytest

from shoal.catalog.inspect import read_facts
from shoal.families import Prepared, Words, family_named
from shoal.families.linears import InNumpy, read_linears, through
from shoal.families.outside import Outside, pool
from shoal.families.words import Vocabulary, pool_logits
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Dense, Facts, Profile, Sparse
from shoal.protocol.items import Item
from shoal.runtimes import open_runtime
from shoal.runtimes.lookup import read_table
from shoal.testing.checkpoints import WIDTH, tiny_encoder, tiny_tokenizer
from shoal.testing.graphs import published_sparse
from shoal.testing.heads import tiny_classifier, tiny_dense, tiny_looked_up, tiny_multivector, tiny_sparse

STATES = np.array([[[1, 2], [5, -4], [99, 99]], [[5, 6], [7, 8], [9, 10]]], np.float32)
MASK = np.array([[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (tiny_dense, {"matryoshka": [12]}),
        (tiny_sparse, {}),
        (tiny_looked_up, {}),
        (tiny_multivector, {}),
        (tiny_classifier, {"activation": "softmax"}),
    ],
)
def test_the_files_of_a_head_say_how_it_is_computed(tmp_path, write, said):
    """`said` is what no file tells."""
    facts = write(tmp_path)
    assert read_facts(tmp_path, said) == facts


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("cls", [[1, 2], [5, 6]]),
        ("last", [[5, -4], [9, 10]]),
        ("max", [[5, 2], [9, 10]]),
        ("mean", [[3, -1], [7, 8]]),
        ("mean_sqrt_len", [[6 / 2**0.5, -2 / 2**0.5], [21 / 3**0.5, 24 / 3**0.5]]),
        ("weighted_mean", [[11 / 3, -6 / 3], [46 / 6, 52 / 6]]),
    ],
)
def test_a_pooling_leaves_padding_out(pooling, expected):
    assert np.allclose(pool(STATES, MASK, pooling), expected)


def test_token_states_without_a_pooling_are_refused():
    with pytest.raises(ModelLoadFailed, match="pooling"):
        pool(STATES, MASK, "none")


def test_words_are_weighed_by_their_greatest_logit_or_the_sum_of_their_logs_and_never_below_0():
    bias = np.array([1, -7], np.float32)
    assert pool_logits(STATES[1], bias, Sparse()).tolist() == [10, 3]
    assert pool_logits(-STATES[1], None, Sparse()).tolist() == [0, 0]
    summed = pool_logits(STATES[1], bias, Sparse(pooling="sum"))
    assert np.allclose(summed, [np.log(7 * 9 * 11), np.log(1 * 2 * 4)])
    twice = pool_logits(STATES[1, :1], None, Sparse(pooling="sum", activation="log1p_log1p_relu"))
    assert np.allclose(twice, [np.log1p(np.log(6)), np.log1p(np.log(7))])


def test_a_large_vocabulary_is_weighed_part_by_part_each_text_by_the_tokens_that_count():
    random = np.random.default_rng(0)
    weight, bias, states = (random.standard_normal(shape, np.float32) for shape in ((9000, 4), 9000, (32, 4)))
    texts = [(3, 0), (5, 2), (1, 0)]
    batch = [Prepared(Item(), [0] * tokens, [0] * tokens, unseen=unseen) for tokens, unseen in texts]
    found = Vocabulary(Words(None, weight, bias), Sparse()).weights(states, batch)
    logits = states @ weight.T + bias
    expected = [logits[rows].max(axis=0).clip(0) for rows in (slice(0, 3), slice(3, 6), slice(8, 9))]
    assert np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["identity", "tanh", "relu", "gelu", "sigmoid", "silu"])
def test_layers_give_in_numpy_what_they_give_in_a_graph(tmp_path, activation):
    """The graph's are compared with PyTorch's elsewhere."""
    facts = tiny_dense(tmp_path, [(16, activation), (8, "identity")])
    plain = msgspec.structs.replace(facts, dense=(), dims=WIDTH, matryoshka=(), normalize=False)
    item = Item("the small fish", normalize=False)
    pooled, through_graph = (
        runtime.run(runtime.prepare([item]), 0).rows[0]["dense"]
        for runtime in (open_runtime(tmp_path, f, Profile(runtime="openvino")) for f in (plain, facts))
    )
    found = through(InNumpy(), pooled[None], read_linears(tmp_path, facts.dense))
    assert np.allclose(found[0], through_graph, atol=1e-5)


def test_layers_that_do_not_fit_each_other_fail_the_load(tmp_path):
    tiny_dense(tmp_path, [(16, "tanh"), (8, "tanh")])
    with pytest.raises(ModelLoadFailed, match=r"linear\.weight"):
        read_linears(tmp_path, [Dense("3_Dense"), Dense("2_Dense")])


def test_dense_modules_come_after_states_that_a_graph_gives_but_not_after_a_vector_that_it_pooled(tmp_path):
    facts = tiny_dense(tmp_path, [(2, "identity")])
    outside = Outside(tmp_path, facts)
    states = np.random.default_rng(0).standard_normal((1, 3, WIDTH), np.float32)
    (layer,) = read_linears(tmp_path, facts.dense)
    found = outside.outputs(states, np.ones((1, 3)), [3])["dense"]
    assert np.allclose(found, states.mean(axis=1) @ layer.weight.T + layer.bias, atol=1e-5)
    assert np.array_equal(outside.outputs(states[:, 0], np.ones((1, 3)), [3])["dense"], states[:, 0])


def test_a_published_graph_of_words_gives_no_other_kind(tmp_path):
    facts = msgspec.structs.replace(published_sparse(tmp_path), kinds=("sparse", "dense"), pooling="mean")
    with pytest.raises(ModelLoadFailed, match="no others"):
        Outside(tmp_path, facts)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"fish": "much"}', '{"fish": null}', '{"fish": NaN}', '{"fish": [1, 2]}'],
)
def test_a_table_that_is_no_table_of_weights_fails_the_load(tmp_path, text):
    facts = tiny_looked_up(tmp_path)
    (tmp_path / "idf.json").write_text(text)
    with pytest.raises(ModelLoadFailed, match=r"idf\.json"):
        read_table(tmp_path, facts.sparse)


def test_a_table_that_is_missing_fails_the_load(tmp_path):
    facts = tiny_looked_up(tmp_path)
    (tmp_path / "idf.json").unlink()
    with pytest.raises(ModelLoadFailed, match=r"idf\.json"):
        open_runtime(tmp_path, facts, Profile(runtime="onnx"))


def test_terms_of_a_table_that_the_tokenizer_has_not_got_are_left_out(tmp_path):
    facts = tiny_looked_up(tmp_path)
    (tmp_path / "idf.json").write_text(json.dumps({"fish": 2.0, "whale": 3.0, "swim": -1.0}))
    weights = read_table(tmp_path, facts.sparse)
    fish, swim = (tiny_tokenizer().token_to_id(word) for word in ("fish", "swim"))
    assert np.flatnonzero(weights).tolist() == sorted([fish, swim])
    runtime = open_runtime(tmp_path, facts, Profile(runtime="onnx"))
    (row,) = runtime.run(runtime.prepare([Item("whale swim fish", kinds=("sparse",), is_query=True)]), 0).rows
    assert (row["sparse.indices"].tolist(), row["sparse.values"].tolist()) == ([fish], [2.0])


def reader(facts: Facts, folder):
    return family_named("bert").open_reader(folder, facts)


def read(folder, facts: Facts, text: str, **asked) -> Prepared:
    (entry,) = reader(facts, folder).prepare([Item(text, kinds=("multivector",), **asked)])
    assert isinstance(entry, Prepared)
    return entry


def pieces(prepared: Prepared) -> list[str]:
    return [tiny_tokenizer().id_to_token(token) for token in prepared.ids]


def test_a_query_is_marked_and_filled_up_with_masks_that_no_token_looks_at(tmp_path):
    facts = tiny_multivector(tmp_path, query_tokens=8)
    query = read(tmp_path, facts, "small fish", is_query=True)
    assert pieces(query) == ["[CLS]", "[UNK]", "small", "fish", "[SEP]", "[MASK]", "[MASK]", "[MASK]"]
    assert (query.unseen, query.kept, query.segments) == (3, None, [0] * 8)
    seen = read(
        tmp_path, tiny_multivector(tmp_path, query_tokens=8, attend_to_expansion=True), "fish", is_query=True
    )
    assert seen.unseen == 0


def test_a_query_that_fills_its_length_is_cut_before_the_last_marker_and_not_filled_up(tmp_path):
    facts = tiny_multivector(tmp_path, query_tokens=5)
    query = read(tmp_path, facts, "the small fish", is_query=True)
    assert pieces(query) == ["[CLS]", "[UNK]", "the", "small", "[SEP]"]
    assert (query.truncated, query.unseen) == (True, 0)


def test_a_document_is_marked_and_its_punctuation_gives_no_vector(tmp_path):
    document = read(tmp_path, tiny_multivector(tmp_path), "fish, fish; of, paris")
    assert pieces(document) == ["[CLS]", "[PAD]", "fish", ",", "fish", ";", "of", ",", "paris", "[SEP]"]
    assert document.kept == [0, 1, 2, 4, 6, 8, 9]
    assert document.unseen == 0


def test_a_text_on_no_side_is_a_document(tmp_path):
    facts = tiny_multivector(tmp_path)
    assert read(tmp_path, facts, "fish").ids == read(tmp_path, facts, "fish", is_query=False).ids


def test_words_to_be_skipped_that_are_no_tokens_do_not_skip_unknown_ones(tmp_path):
    document = read(tmp_path, tiny_multivector(tmp_path, skip=("whale", ",")), "★, fish")
    assert pieces(document)[2] == "[UNK]"
    assert document.kept == [0, 1, 2, 4, 5]


def test_without_a_mask_token_queries_cannot_be_filled_up(tmp_path):
    facts = tiny_multivector(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[GAP]"))
    with pytest.raises(ModelLoadFailed, match="MASK"):
        reader(facts, tmp_path)
    assert reader(tiny_multivector(tmp_path, expand=False), tmp_path)


def test_kinds_without_their_facts_fail_the_load(tmp_path):
    facts = tiny_encoder(tmp_path)
    for kind in ("sparse", "multivector"):
        with pytest.raises(ModelLoadFailed, match="the facts do not say"):
            open_runtime(tmp_path, msgspec.structs.replace(facts, kinds=(kind,)), Profile(runtime="onnx"))


def test_a_model_whose_queries_are_looked_up_gives_no_other_kind(tmp_path):
    facts = msgspec.structs.replace(
        tiny_looked_up(tmp_path), kinds=("sparse", "dense"), pooling="mean", dims=WIDTH
    )
    with pytest.raises(ModelLoadFailed, match="looked up"):
        open_runtime(tmp_path, facts, Profile(runtime="onnx"))
