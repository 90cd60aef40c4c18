"""What is read out of a model's folder, in the layouts of transformers and sentence-transformers 2 to 6."""

from pathlib import Path
from typing import Any

import pytest
from model_folders import POOLING, module, write_encoder, write_json, write_plain, write_scorer

from shoal.catalog.inspect import read_facts
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts


def test_an_encoder_says_its_task_width_pooling_norm_and_limit(tmp_path: Path) -> None:
    assert read_facts(write_encoder(tmp_path), {}) == Facts(
        tasks=("encode",),
        family="bert",
        files="safetensors",
        max_tokens=256,
        dims=8,
        pooling="mean",
        normalize=True,
    )


def test_an_encoder_saved_by_release_6_reads_the_same(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    kinds = {
        "": "sentence_transformers.base.modules.transformer.Transformer",
        "1_Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
        "2_Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    }
    write_json(folder / "modules.json", [{"path": path, "type": kind} for path, kind in kinds.items()])
    write_json(
        folder / "1_Pooling/config.json",
        {"embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True},
    )
    write_json(
        folder / "sentence_bert_config.json", {"transformer_task": "feature-extraction", "modality_config": {}}
    )
    write_json(folder / "tokenizer_config.json", {"model_max_length": 256, "max_length": 128})
    facts = read_facts(folder, {})
    assert (facts.max_tokens, facts.pooling, facts.normalize, facts.dims) == (256, "mean", True, 8)


def test_a_plain_encoder_is_pooled_by_mean_and_not_normalised(tmp_path: Path) -> None:
    facts = read_facts(write_plain(tmp_path), {})
    assert (facts.tasks, facts.pooling, facts.normalize) == (("encode",), "mean", False)


def test_cls_pooling_and_a_missing_norm_are_seen(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    write_json(folder / "modules.json", [module(0, "Transformer"), module(1, "Pooling", "1_Pooling")])
    write_json(
        folder / "1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    )
    facts = read_facts(folder, {})
    assert (facts.pooling, facts.normalize) == ("cls", False)


def test_prompts_and_their_default_are_read(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    prompts = {"query": "query: ", "passage": "passage: "}
    write_json(
        folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "passage"}
    )
    facts = read_facts(folder, {})
    assert (facts.prompts, facts.default_prompt) == (prompts, "passage")


def test_lower_casing_by_the_library_is_seen(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 100, "do_lower_case": True})
    facts = read_facts(folder, {})
    assert (facts.lowercase, facts.max_tokens) == (True, 100)


@pytest.mark.parametrize(
    ("sequence", "tokenizer", "positions", "limit"),
    [
        (256, 512, 512, 256),
        (None, 128, 512, 128),
        (None, 1000000000000000019884624838656, 512, 512),
        (None, 1e30, 384, 384),
        (2048, 512, None, 512),
        (8192, None, 512, 512),
    ],
)
def test_the_limit_is_the_least_that_any_file_sets(
    tmp_path: Path, sequence: int | None, tokenizer: float | None, positions: int | None, limit: int
) -> None:
    folder = write_encoder(tmp_path, max_position_embeddings=positions)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": sequence})
    write_json(folder / "tokenizer_config.json", {"model_max_length": tokenizer})
    assert read_facts(folder, {}).max_tokens == limit


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        ({}, "sigmoid"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
    ],
)
def test_a_classifier_with_one_label_scores_through_what_its_config_says(
    tmp_path: Path, config: dict[str, Any], activation: str
) -> None:
    facts = read_facts(write_scorer(tmp_path, **config), {})
    assert (facts.tasks, facts.activation, facts.dims, facts.pooling) == (("score",), activation, 0, "none")


def test_a_cross_encoder_saved_by_release_6_scores_although_it_has_modules(tmp_path: Path) -> None:
    folder = write_scorer(tmp_path)
    write_json(
        folder / "modules.json",
        [{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}],
    )
    saved = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity", "prompts": {}}
    write_json(folder / "config_sentence_transformers.json", saved)
    facts = read_facts(folder, {})
    assert (facts.tasks, facts.activation) == (("score",), "identity")


def test_an_onnx_folder_without_config_is_read_by_its_card(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07")
    write_json(tmp_path / "tokenizer.json", {})
    write_json(tmp_path / "tokenizer_config.json", {"model_max_length": 512})
    facts = read_facts(tmp_path, {"tasks": ["score"], "family": "bert"})
    assert facts == Facts(tasks=("score",), family="bert", files="onnx", max_tokens=512)
    with pytest.raises(InvalidInput, match="tasks"):
        read_facts(tmp_path, {})


def test_what_the_card_says_wins_over_the_files(tmp_path: Path) -> None:
    facts = read_facts(write_encoder(tmp_path), {"pooling": "cls", "normalize": False, "matryoshka": [4, 2]})
    assert (facts.pooling, facts.normalize, facts.matryoshka, facts.max_tokens) == ("cls", False, (4, 2), 256)


REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("config.json", {"model_type": "bert", "auto_map": {"AutoModel": "x.X"}}, "code of its own"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["x.X", None]}}, "code of its own"),
    ("config.json", {"model_type": "mamba", "hidden_size": 8}, "'mamba' are not known yet; known: bert"),
    ("config.json", {"model_type": "bert"}, "hidden_size"),
    ("config.json", {"hidden_size": 8}, "not known yet"),
    ("config.json", {"model_type": "bert", "hidden_size": -8}, r"config.json: .*>= 1.*hidden_size"),
    ("config.json", {"model_type": "bert", "hidden_size": 10**30}, "config.json"),
    ("config.json", {"model_type": "bert", "hidden_size": "8"}, "config.json: Expected `int"),
    ("config.json", {"model_type": ["bert"]}, "config.json: Expected `str`"),
    ("config.json", {"model_type": "bert", "hidden_size": 8, "max_position_embeddings": 0}, "config.json"),
    ("tokenizer_config.json", {"model_max_length": -1}, "tokenizer_config.json"),
    ("sentence_bert_config.json", {"max_seq_length": -5}, "sentence_bert_config.json"),
    ("sentence_bert_config.json", {"max_seq_length": 2.5}, "sentence_bert_config.json"),
    ("config_sentence_transformers.json", {"prompts": {"query": 7}}, "config_sentence_transformers.json"),
    ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default prompt 'query' is none of"),
    ("config_sentence_transformers.json", {"prompts": {"q": "x" * 10_000}}, "config_sentence_transformers.json"),
    ("1_Pooling/config.json", POOLING | {"pooling_mode_max_tokens": True}, r"mean\+max lays several vectors"),
    ("1_Pooling/config.json", {"pooling_mode": "median"}, "median is not known"),
    ("1_Pooling/config.json", {"pooling_mode": []}, "not known"),
    ("1_Pooling/config.json", POOLING | {"include_prompt": False}, "without the prompt"),
    ("1_Pooling/config.json", {"word_embedding_dimension": 9}, "says 9 dims, config.json 8"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSALS)
def test_a_file_that_cannot_be_served_as_it_says_is_refused_with_the_reason(
    tmp_path: Path, name: str, value: dict[str, Any], reason: str
) -> None:
    folder = write_encoder(tmp_path)
    write_json(folder / name, value)
    with pytest.raises(InvalidInput, match=reason):
        read_facts(folder, {})


TWO = [module(0, "Transformer"), module(1, "Pooling", "1_Pooling")]


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ([{"path": "", "type": "custom_module.MyTransformer"}], "code of its own"),
        ([*TWO, module(2, "CNN", "2_CNN")], "CNN; known"),
        ([*TWO, module(2, "Dense", "2_Dense")], "no 2_Dense/config.json"),
        ([module(0, "Transformer")], "modules.json has Transformer"),
        ([], "nothing"),
        ([module(0, "Transformer"), module(1, "Pooling", "../../elsewhere")], "elsewhere"),
        ([module(0, "Transformer"), module(1, "Pooling", "1_/../../x")], "expected"),
        ([module(0, "Transformer"), module(1, "Pooling", "3_Pooling")], "no 3_Pooling/config.json"),
        ({"not": "a list"}, "modules.json"),
    ],
)
def test_modules_that_are_not_built_in_are_refused(tmp_path: Path, modules: Any, reason: str) -> None:
    folder = write_encoder(tmp_path)
    write_json(folder / "modules.json", modules)
    with pytest.raises(InvalidInput, match=reason):
        read_facts(folder, {})


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00", '{"model_type": NaN}', "[" * 100_000, '{"a":' * 50_000])
def test_a_broken_config_is_refused_not_a_trace(tmp_path: Path, text: str) -> None:
    folder = write_encoder(tmp_path)
    (folder / "config.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"config\.json"):
        read_facts(folder, {})


def test_a_config_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    (folder / "config.json").write_bytes(b'{"model_type": "\xff\xfe"}')
    with pytest.raises(InvalidInput, match=r"config\.json"):
        read_facts(folder, {})


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"num_labels": 3}, "the labels 0 and says there are 3"),
        ({"id2label": {"1": "no", "2": "yes"}}, "the labels 1, 2 and says there are 2"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Softmax"}, "Softmax of several"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"}, "Tanh"),
        ({"sentence_transformers": {"activation_fn": 7}}, "7 are not known"),
    ],
)
def test_a_classifier_whose_labels_or_activation_make_no_sense_here_is_refused(
    tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read_facts(write_scorer(tmp_path, **config), {})


def test_a_language_model_head_alone_is_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither encodes nor scores"):
        read_facts(write_plain(tmp_path, architectures=["BertForMaskedLM"]), {})


def test_a_missing_tokenizer_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (write_encoder(tmp_path) / "tokenizer.json").unlink()
    with pytest.raises(InvalidInput, match="save the fast tokenizer"):
        read_facts(tmp_path, {})


def test_a_model_that_sets_no_length_at_all_is_refused(tmp_path: Path) -> None:
    folder = write_plain(tmp_path, max_position_embeddings=None)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(InvalidInput, match="max_tokens"):
        read_facts(folder, {})


@pytest.mark.parametrize(
    "said",
    [
        {"max_tokens": 0}, {"max_tokens": 10**12}, {"max_tokens": "many"}, {"dims": 0}, {"dims": -3},
        {"tasks": []}, {"matryoshka": [16]}, {"matryoshka": [0]}, {"pooling": "sum"},
        {"default_prompt": "query"}, {"files": "pickle"},
    ],
)  # fmt: skip
def test_an_absurd_card_is_refused(tmp_path: Path, said: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        read_facts(write_encoder(tmp_path), said)
