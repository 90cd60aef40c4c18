"""Which checkpoints the BERT family takes, and what it says of the others."""

import json

import pytest

from shoal.families import family_named, heads
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.runtimes.onnx_ops import OnnxOps
from shoal.testing.checkpoints import POSITIONS, tiny_encoder, tiny_reranker


@pytest.fixture
def encoder(tmp_path):
    return tmp_path, tiny_encoder(tmp_path)


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def describe(folder, facts):
    return heads.describe(family_named("bert"), OnnxOps(), folder, facts)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "roberta"}, "roberta"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "bert"),
        ({"hidden_act": "mish"}, "mish"),
        ({"num_attention_heads": 5}, "5 heads"),
        ({"num_hidden_layers": 3}, "encoder.layer.2"),
        ({"hidden_size": 16}, "embeddings"),
        ({"vocab_size": 1000}, "word_embeddings"),
        ({"max_position_embeddings": POSITIONS + 1}, "position_embeddings"),
        ({"type_vocab_size": 3}, "token_type_embeddings"),
        ({"max_position_embeddings": POSITIONS - 1}, "max_tokens"),
    ],
)
def test_a_checkpoint_that_is_no_bert_of_this_shape_fails_the_load_and_says_why(encoder, changes, named):
    folder, facts = encoder
    configure(folder, **changes)
    with pytest.raises(ModelLoadFailed, match=named):
        describe(folder, facts)


def test_an_encoder_without_a_pooling_fails_the_load(encoder):
    folder, _ = encoder
    with pytest.raises(ModelLoadFailed, match="pooling"):
        describe(folder, tiny_encoder(folder, pooling="none"))


def test_an_encoder_that_is_asked_to_score_fails_the_load(encoder, tmp_path):
    folder, _ = encoder
    with pytest.raises(ModelLoadFailed, match="pooler"):
        describe(folder, tiny_reranker(tmp_path / "other"))


def test_a_scorer_that_cannot_tell_two_texts_apart_fails_the_load(tmp_path):
    facts = tiny_reranker(tmp_path)
    configure(tmp_path, type_vocab_size=1)
    with pytest.raises(ModelLoadFailed, match="segments"):
        describe(tmp_path, facts)


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows_fails_the_load(encoder):
    folder, facts = encoder
    configure(folder, vocab_size=50)
    with pytest.raises(ModelLoadFailed, match="50"):
        family_named("bert").open_reader(folder, facts)


@pytest.mark.parametrize("name", ["abacus", "weights", "layers", "..protocol", ""])
def test_a_family_that_is_not_in_the_folder_is_an_error(name):
    with pytest.raises(InvalidInput):
        family_named(name)
