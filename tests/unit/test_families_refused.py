"""Which settings of config.json each family refuses before it reads a weight, and what it says of them."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from shoal.families import family_named
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.runtimes.onnx_ops import OnnxOps

LIMIT = 64
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": LIMIT,
}
OFFSET = SIZES | {"max_position_embeddings": LIMIT + 2, "pad_token_id": 1, "type_vocab_size": 1}
CONFIGS = {
    "roberta": OFFSET | {"model_type": "xlm-roberta"},
    "distilbert": {
        "model_type": "distilbert", "vocab_size": 60, "dim": 32, "n_heads": 4, "n_layers": 2,
        "max_position_embeddings": LIMIT,
    },
    "mpnet": OFFSET | {"model_type": "mpnet"},
    "modernbert": SIZES | {"model_type": "modernbert"},
    "nomic": SIZES | {"model_type": "nomic_bert", "type_vocab_size": 2},
}  # fmt: skip
NOMICS_OWN = {
    "model_type": "nomic_bert", "vocab_size": 60, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": LIMIT,
    "layer_norm_epsilon": 1e-12, "use_rms_norm": None, "prenorm": False,
    "rotary_emb_base": 1000, "activation_function": "swiglu",
}  # fmt: skip


def network(folder, family: str, config: dict[str, object], max_tokens: int = LIMIT, task: str = "encode"):
    save_file({"nothing": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    facts = Facts(
        tasks=(task,), family=family, files="safetensors", max_tokens=max_tokens, dims=32, pooling="mean"
    )
    return family_named(family).network(OnnxOps(), Checkpoint(folder), facts)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_family_takes_its_own_kind_of_model_as_long_as_the_texts_fit(tmp_path, family):
    assert network(tmp_path, family, CONFIGS[family]).width == 32
    with pytest.raises(ModelLoadFailed, match=rf"max_tokens is {LIMIT + 1}, but the model has {LIMIT}"):
        network(tmp_path, family, CONFIGS[family], LIMIT + 1)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_family_refuses_another_kind_of_model_by_name(tmp_path, family):
    with pytest.raises(ModelLoadFailed, match="gpt2"):
        network(tmp_path, family, CONFIGS[family] | {"model_type": "gpt2"})


@pytest.mark.parametrize("family", CONFIGS)
def test_an_activation_that_is_not_known_is_refused_by_name(tmp_path, family):
    name = {"distilbert": "activation", "modernbert": "hidden_activation"}.get(family, "hidden_act")
    with pytest.raises(ModelLoadFailed, match="mish"):
        network(tmp_path, family, CONFIGS[family] | {name: "mish"})


@pytest.mark.parametrize("family", CONFIGS)
def test_a_checkpoint_without_the_weights_fails_by_the_name_of_the_first(tmp_path, family):
    with pytest.raises(ModelLoadFailed, match=r"embeddings\.(word|tok|position)_embeddings"):
        network(tmp_path, family, CONFIGS[family]).states()


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("roberta", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("roberta", {"is_decoder": True}, "decoder"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "64"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
        ("modernbert", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        ("nomic", {"prenorm": True}, "prenorm"),
        ("nomic", {"qkv_proj_bias": True}, "qkv_proj_bias"),
        ("nomic", {"activation_function": "gelu"}, "activation_function"),
        ("nomic", {"rotary_emb_interleaved": True}, "rotary_emb_interleaved"),
        ("nomic", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction"),
        ("nomic", {"rotary_scaling_factor": 2.0}, "rotary_scaling_factor"),
        ("nomic", {"num_experts": 8}, "num_experts"),
        ("nomic", {"model_type": "gte", "logn_attention_scale": True}, "logn_attention_scale"),
    ],
)
def test_what_a_family_does_not_compute_is_refused_with_the_setting_that_asks_for_it(
    tmp_path, family, changes, said
):
    with pytest.raises(ModelLoadFailed, match=said):
        network(tmp_path, family, CONFIGS[family] | changes)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("nomic", {"rope_scaling": {"type": "ntk", "factor": 8.0}}),
        ("nomic", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1000.0}}),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}}),
    ],
)
def test_stretched_rotary_positions_are_refused_by_their_type(tmp_path, family, changes):
    table = "tok" if family == "modernbert" else "word"
    config = CONFIGS[family] | changes
    built = network(tmp_path, family, config)
    weights = {
        f"embeddings.{table}_embeddings.weight": np.zeros((60, 32), np.float32),
        "embeddings.token_type_embeddings.weight": np.zeros((2, 32), np.float32),
        **{
            f"{norm}.{part}": np.zeros(32, np.float32)
            for norm in ("emb_ln", "embeddings.norm")
            for part in ("weight", "bias")
        },
    }
    save_file(weights, tmp_path / "model.safetensors")
    built.checkpoint = Checkpoint(tmp_path)
    with pytest.raises(ModelLoadFailed, match=r"ntk|yarn|linear"):
        built.states()


def test_nomics_own_names_of_its_settings_are_understood(tmp_path):
    assert network(tmp_path, "nomic", NOMICS_OWN).width == 32
    with pytest.raises(ModelLoadFailed, match=f"{LIMIT} positions"):
        network(tmp_path, "nomic", NOMICS_OWN, LIMIT + 1)


def test_a_nomic_scorer_that_cannot_tell_two_texts_apart_is_refused(tmp_path):
    with pytest.raises(ModelLoadFailed, match="segments"):
        network(tmp_path, "nomic", CONFIGS["nomic"] | {"type_vocab_size": 1}, task="score")
