"""What stands on top of an encoder, in files as their libraries write them; refusals with the reason."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import CONFIG, module, write_encoder, write_json, write_plain, write_scorer
from safetensors.numpy import load_file, save_file

from shoal.catalog.inspect import read_facts
from shoal.catalog.readme import licence_of
from shoal.catalog.store import Store
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Dense, Facts, MultiVector, Sparse
from shoal.testing.checkpoints import tiny_tokenizer

TANH = "torch.nn.modules.activation.Tanh"


def write_dense(folder: Path, number: int, *, weights: bool = True, **config: Any) -> dict[str, Any]:
    """One Dense module's folder; its entry in modules.json."""
    said = {"in_features": 8, "out_features": 4, "bias": True, "activation_function": TANH} | config
    write_json(folder / f"{number}_Dense" / "config.json", said)
    if weights:
        shape = said["out_features"], said["in_features"]
        save_file({"linear.weight": np.ones(shape, np.float32)}, folder / f"{number}_Dense/model.safetensors")
    return module(number, "Dense", f"{number}_Dense")


def with_dense(folder: Path, *, weights: bool = True, **config: Any) -> Path:
    write_encoder(folder)
    before = [module(0, "Transformer"), module(1, "Pooling", "1_Pooling")]
    write_json(folder / "modules.json", [*before, write_dense(folder, 2, weights=weights, **config)])
    return folder


def test_a_dense_layer_gives_the_width(tmp_path: Path) -> None:
    facts = read_facts(with_dense(tmp_path), {})
    assert (facts.dims, facts.dense, facts.normalize) == (4, (Dense("2_Dense", "tanh"),), False)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"in_features": 9}, "takes 9 dims, but 8 come in"),
        ({"activation_function": "torch.nn.modules.activation.Softplus"}, "Softplus is not known"),
        ({"activation_function": "own.Activation"}, "Activation is not known"),
        ({"use_residual": True}, "residual connection is not known"),
        ({"module_input_name": "token_embeddings"}, "works on 'token_embeddings'"),
        ({"out_features": 0}, "2_Dense/config.json"),
        ({"activation_function": 7}, "2_Dense/config.json"),
    ],
)
def test_a_dense_layer_that_is_not_known_is_refused(tmp_path: Path, config: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read_facts(with_dense(tmp_path, **config), {})


def test_a_dense_layer_in_a_pickle_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = with_dense(tmp_path / "m", weights=False)
    (folder / "2_Dense/pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(InvalidInput, match=r"2_Dense has no model.safetensors.*pickle.*save the model again"):
        Store(tmp_path / "home").add(folder)


def test_a_dense_layer_cut_short_is_refused(tmp_path: Path) -> None:
    folder = with_dense(tmp_path / "m")
    path = folder / "2_Dense/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match="cut short"):
        Store(tmp_path / "home").add(folder)


def test_dropout_does_nothing_to_what_is_served(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    modules = [module(0, "Transformer"), module(1, "Pooling", "1_Pooling"), module(2, "Dropout", "2_Dropout")]
    write_json(tmp_path / "modules.json", modules)
    assert read_facts(tmp_path, {}).dims == 8


@pytest.mark.parametrize(
    ("kind", "positions", "padding", "limit"),
    [
        ("bert", 512, 0, 512), ("roberta", 514, 1, 512), ("xlm-roberta", 514, 1, 512),
        ("camembert", 514, None, 512),
        ("mpnet", 514, 1, 512), ("distilbert", 512, 0, 512), ("modernbert", 8192, 5, 8192),
    ],
)  # fmt: skip
def test_positions_that_the_padding_takes_are_no_room_for_text(
    tmp_path: Path, kind: str, positions: int, padding: int | None, limit: int
) -> None:
    folder = write_plain(tmp_path, model_type=kind, max_position_embeddings=positions, pad_token_id=padding)
    (folder / "tokenizer_config.json").unlink()
    assert read_facts(folder, {}).max_tokens == limit


def test_other_words_for_width_and_length_are_read(tmp_path: Path) -> None:
    distil = write_plain(tmp_path / "a", model_type="distilbert", hidden_size=None, dim=12)
    assert read_facts(distil, {}).dims == 12
    nomic = {"model_type": "nomic_bert", "hidden_size": None, "n_embd": 12, "max_position_embeddings": None}
    folder = write_plain(tmp_path / "b", **nomic, n_positions=100, auto_map={"AutoModel": "own.Model"})
    facts = read_facts(folder, {})
    assert (facts.dims, facts.max_tokens, facts.family) == (12, 100, "nomic")


def test_shorter_widths_come_from_the_config_and_from_the_readmes_loss(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, matryoshka_dimensions=[8, 2])
    assert read_facts(folder, {}).matryoshka == (2,)
    loss = '{\n "loss": "X",\n "matryoshka_dims": [\n 8,\n 4,\n 2\n ]}'
    (folder / "README.md").write_text(f"---\nlicense: mit\n---\n{loss}\n")
    assert read_facts(folder, {}).matryoshka == (2, 4)
    assert licence_of(folder) == "mit"


@pytest.mark.parametrize("text", ["", "---", "---\nlicense: [mit]\n---", "\xff", "---\n" + "x" * 2_000_000])
def test_a_readme_of_any_kind_does_no_harm(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_bytes(text.encode("latin-1"))
    assert licence_of(tmp_path) == ""


def test_labels_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    labels = {str(number): f"class {number}" for number in (2, 10, 0, 1, 3, 4, 5, 6, 7, 8, 9)}
    facts = read_facts(write_scorer(tmp_path, id2label=labels, problem_type="single_label_classification"), {})
    assert facts.labels == tuple(f"class {number}" for number in range(11))
    assert facts.activation == "softmax"


def test_a_classifier_that_names_no_labels_has_two(tmp_path: Path) -> None:
    assert read_facts(write_scorer(tmp_path, id2label=None), {}).labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    ("kinds", "architecture", "reason"),
    [
        (
            ["Transformer", "LogitScore", "Dense"],
            "Qwen2ForCausalLM",
            "Transformer, LogitScore, Dense is not known",
        ),
        (["Transformer", "Pooling", "Dense"], "BertModel", "Transformer, Pooling, Dense is not known"),
        (["Transformer"], "Qwen2ForCausalLM", "a scorer of Transformer is not known"),
    ],
)
def test_a_scorer_that_is_no_classifier_alone_is_refused(
    tmp_path: Path, kinds: list[str], architecture: str, reason: str
) -> None:
    write_plain(tmp_path, architectures=[architecture])
    write_json(tmp_path / "modules.json", [module(number, kind) for number, kind in enumerate(kinds)])
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    with pytest.raises(InvalidInput, match=reason):
        read_facts(tmp_path, {})


def write_ranker(folder: Path, **head: Any) -> Path:
    """A language model with a LogitScore, as sentence-transformers saves it."""
    write_plain(folder, architectures=["Qwen2ForCausalLM"], model_type="qwen2")
    write_json(folder / "modules.json", [module(0, "Transformer"), module(1, "LogitScore", "1_LogitScore")])
    write_json(folder / "1_LogitScore" / "config.json", {"true_token_id": 7, "false_token_id": 9} | head)
    write_json(folder / "sentence_bert_config.json", {"transformer_task": "text-generation"})
    saved = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity"}
    write_json(folder / "config_sentence_transformers.json", saved | {"prompts": {"web": "Does it answer?"}})
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }} {{ messages[1].content }}")
    return folder


def test_a_language_model_with_a_score_head_scores_pairs_through_its_saved_activation(tmp_path: Path) -> None:
    wanted = Facts(
        tasks=("score",), family="qwen2", files="safetensors", max_tokens=512, prompts={"web": "Does it answer?"}
    )
    assert read_facts(write_ranker(tmp_path), {}) == wanted
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    assert read_facts(tmp_path, {}).activation == "sigmoid"
    (tmp_path / "chat_template.jinja").unlink()
    write_json(tmp_path / "tokenizer_config.json", {"model_max_length": 512, "chat_template": "{{ messages }}"})
    assert read_facts(tmp_path, {}).activation == "sigmoid"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"true_token_id": 100_000}, "token 100000, config.json a vocabulary of"),
        ({"false_token_id": 100_000}, "token 100000, config.json a vocabulary of"),
        ({"true_token_id": -1}, "true_token_id"),
        ({"true_token_id": 9}, "from itself"),
        ({"module_input_name": "scores"}, "works on 'scores'"),
    ],
)
def test_a_score_of_words_that_a_language_model_has_not_got_is_refused(
    tmp_path: Path, head: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read_facts(write_ranker(tmp_path, **head), {})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("chat_template.jinja", None, "needs a chat template"),
        ("1_LogitScore/config.json", None, "there is no 1_LogitScore/config.json"),
        ("sentence_bert_config.json", {"transformer_task": "feature-extraction"}, "the task 'feature-extraction'"),
        (
            "sentence_bert_config.json",
            {"transformer_task": "text-generation", "modality_config": {"text": {}}},
            "leaves the chat template out",
        ),
        (
            "sentence_bert_config.json",
            {"transformer_task": "text-generation", "processing_kwargs": {"text": {"max_length": 9}}},
            "sets lengths",
        ),
        (
            "config.json",
            CONFIG | {"model_type": "electra", "architectures": ["ElectraForCausalLM"]},
            "ElectraForCausalLM with a LogitScore",
        ),
    ],
)
def test_a_language_model_whose_template_or_score_head_is_not_whole_is_refused(
    tmp_path: Path, name: str, content: Any, reason: str
) -> None:
    write_ranker(tmp_path)
    (tmp_path / name).unlink() if content is None else write_json(tmp_path / name, content)
    with pytest.raises(InvalidInput, match=reason):
        read_facts(tmp_path, {})


def test_an_encoder_trained_from_a_classifier_is_an_encoder(tmp_path: Path) -> None:
    facts = read_facts(write_encoder(tmp_path, architectures=["BertForSequenceClassification"]), {})
    assert facts.tasks == ("encode",)


def write_masked(folder: Path, tags: str = "") -> Path:
    write_plain(folder, masked=True, architectures=["BertForMaskedLM"])
    if tags:
        (folder / "README.md").write_text(f"---\nlicense: mit\ntags:\n- {tags}\n---\n")
    return folder


def test_a_masked_language_model_is_sparse_if_its_card_or_its_tags_say_so(tmp_path: Path) -> None:
    wanted = Facts(
        tasks=("encode",), family="bert", files="safetensors", max_tokens=512, kinds=("sparse",), sparse=Sparse()
    )
    assert read_facts(write_masked(tmp_path / "a", "splade"), {}) == wanted
    assert read_facts(write_masked(tmp_path / "b"), {"kinds": ["sparse"]}) == wanted
    with pytest.raises(InvalidInput, match="tag splade in its README"):
        read_facts(write_masked(tmp_path / "c", "fill-mask"), {})


def write_router(folder: Path, query: str = "SparseStaticEmbedding") -> Path:
    """As Router.save lays it out, the query's table as the publisher's idf.json on top."""
    write_masked(folder)
    types = {
        f"query_0_{query}": f"sentence_transformers.sparse_encoder.models.{query}",
        "document_0_MLMTransformer": "sentence_transformers.sparse_encoder.models.MLMTransformer",
        "document_1_SpladePooling": "sentence_transformers.sparse_encoder.models.SpladePooling",
    }
    structure = {"query": [f"query_0_{query}"], "document": list(types)[1:]}
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": {}})
    write_json(folder / "modules.json", [module(0, "Router")])
    write_json(folder / f"query_0_{query}" / "config.json", {"frozen": True})
    pooling = {"pooling_strategy": "max", "activation_function": "log1p_relu", "word_embedding_dimension": None}
    write_json(folder / "document_1_SpladePooling" / "config.json", pooling)
    write_json(folder / "idf.json", {"fish": 1.5})
    return folder


def test_queries_may_be_looked_up_in_a_published_table(tmp_path: Path) -> None:
    model = Store(tmp_path / "home").add(write_router(tmp_path / "m"))
    assert model.facts.sparse == Sparse(activation="log1p_log1p_relu", queries="table", table="idf.json")
    assert json.loads((model.folder / "idf.json").read_text()) == {"fish": 1.5}


def test_a_router_that_is_not_known_or_has_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"Router of query and document through MLMTransformer"):
        read_facts(write_router(tmp_path / "a", "MLMTransformer"), {})
    (write_router(tmp_path / "b") / "idf.json").unlink()
    with pytest.raises(InvalidInput, match="queries have no table"):
        read_facts(tmp_path / "b", {})
    (tmp_path / "b" / "router_config.json").unlink()
    with pytest.raises(InvalidInput, match=r"no router_config\.json"):
        read_facts(tmp_path / "b", {})


def write_pylate(folder: Path, marks: tuple[str, ...] = ("[Q] ", "[D] "), **said: Any) -> Path:
    write_plain(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([mark for mark in marks if mark])
    tokenizer.save(str(folder / "tokenizer.json"))
    dense = write_dense(folder, 1, bias=False, activation_function="torch.nn.modules.linear.Identity")
    write_json(folder / "modules.json", [module(0, "Transformer"), dense | {"type": "pylate.models.Dense.Dense"}])
    # Whichever side was encoded last before it was saved.
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 31})
    usual = {
        "model_type": "ColBERT", "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 32,
        "document_length": 180, "attend_to_expansion_tokens": False, "skiplist_words": ["!", "?"],
        "prompts": {},
    }  # fmt: skip
    write_json(folder / "config_sentence_transformers.json", usual | said)
    return folder


def test_pylates_marks_are_tokens_where_the_tokenizer_has_them(tmp_path: Path) -> None:
    facts = read_facts(write_pylate(tmp_path), {})
    assert (facts.tasks, facts.kinds, facts.max_tokens, facts.prompts) == (
        ("encode", "score"), ("multivector",), 512, {},
    )  # fmt: skip
    assert facts.multivector == MultiVector(
        dims=4, projection=(Dense("1_Dense"),), query_tokens=32, document_tokens=180,
        query_marker="[Q] ", document_marker="[D] ", skip=("!", "?"),
    )  # fmt: skip


def test_pylates_marks_are_text_where_the_tokenizer_has_no_such_token(tmp_path: Path) -> None:
    facts = read_facts(write_pylate(tmp_path, marks=("[D] ",), prompts={"query": "search: "}), {})
    assert facts.multivector is not None
    assert (facts.multivector.query_marker, facts.multivector.document_marker) == ("", "[D] ")
    assert facts.prompts == {"query": "[Q] search: "}


def test_pylates_habits_hold_where_its_file_is_silent(tmp_path: Path) -> None:
    facts = read_facts(write_pylate(tmp_path, skiplist_words=None, do_query_expansion=False), {})
    assert facts.multivector is not None
    assert "".join(facts.multivector.skip) == "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert (facts.multivector.expand, facts.multivector.query_tokens) == (False, 32)


def test_stanfords_colbert_has_its_projection_in_the_checkpoint(tmp_path: Path) -> None:
    write_plain(tmp_path, architectures=["HF_ColBERT"])
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["[unused0]", "[unused1]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "artifact.metadata", {"query_maxlen": 24, "doc_maxlen": 180, "dim": 96, "nbits": 2})
    facts = read_facts(tmp_path, {})
    many = facts.multivector
    assert many is not None
    assert (many.dims, many.projection, many.query_tokens, many.document_tokens) == (96, (Dense(""),), 24, 180)
    assert (many.query_marker, many.document_marker, len(many.skip)) == ("[unused0]", "[unused1]", 32)


def test_stanfords_projection_is_as_wide_as_its_weights_whatever_is_said(tmp_path: Path) -> None:
    write_plain(tmp_path / "m", architectures=["HF_ColBERT"], vocab_size=107)
    weights = load_file(tmp_path / "m" / "model.safetensors")
    words = "embeddings.word_embeddings.weight"
    weights |= {words: np.ones((107, 8), np.float32), "linear.weight": np.ones((4, 8), np.float32)}
    save_file(weights, tmp_path / "m" / "model.safetensors")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["[unused0]", "[unused1]"])
    tokenizer.save(str(tmp_path / "m" / "tokenizer.json"))
    facts = Store(tmp_path / "home").add(tmp_path / "m").facts
    assert facts.multivector is not None
    assert facts.multivector.dims == 4


def write_modern(folder: Path, text: dict[str, Any], mask: dict[str, Any] | None = None) -> Path:
    write_plain(folder)
    dense = write_dense(folder, 1, activation_function="torch.nn.modules.linear.Identity")
    write_json(folder / "2_MultiVectorMask" / "config.json", mask or {})
    write_json(folder / "3_Normalize" / "config.json", {"module_input_name": "token_embeddings"})
    ends = [module(2, "MultiVectorMask", "2_MultiVectorMask"), module(3, "Normalize", "3_Normalize")]
    write_json(folder / "modules.json", [module(0, "Transformer"), dense, *ends])
    write_json(folder / "sentence_bert_config.json", text)
    write_json(folder / "config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"})
    return folder


def test_a_modern_colbert_without_expansion_takes_queries_as_they_are(tmp_path: Path) -> None:
    facts = read_facts(write_modern(tmp_path, {"query_length": 64}, {"skiplist_words": ["."]}), {})
    assert facts.multivector == MultiVector(
        dims=4, projection=(Dense("1_Dense"),), query_tokens=64, expand=False, skip=(".",)
    )


@pytest.mark.parametrize(
    ("text", "mask", "reason"),
    [
        ({"query_expansion": {"strategy": "min", "length": 32}}, None, "filled up by 'min'"),
        ({"query_expansion": {"strategy": "fixed", "length": 32, "token": "[PAD]"}}, None, r"with \[PAD\]"),
        ({"query_expansion": {"strategy": "fixed", "length": 0}}, None, r"sentence_bert_config\.json"),
        ({}, {"skiplist_tasks": ["query", "document"]}, "leaves out tokens of queries"),
        ({}, {"keep_only_token_ids": [7]}, "keeps only some"),
    ],
)
def test_a_colbert_that_works_otherwise_is_refused(
    tmp_path: Path, text: dict[str, Any], mask: dict[str, Any] | None, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read_facts(write_modern(tmp_path, text, mask), {})


@pytest.mark.parametrize(
    "said",
    [
        {"kinds": ["dense", "sparse"]}, {"kinds": []}, {"kinds": ["multivector"]}, {"sparse": {}},
        {"labels": ["a"]}, {"labels": ["a", "b"]}, {"multivector": {"dims": 4}},
    ],
)  # fmt: skip
def test_a_card_whose_kinds_do_not_fit_what_it_describes_is_refused(
    tmp_path: Path, said: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput):
        read_facts(write_encoder(tmp_path), said)


def test_shards_are_taken_with_their_index_and_missed_if_one_is_gone(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    weights = load_file(folder / "model.safetensors")
    places = {name: names[i % 2] for i, name in enumerate(weights)}
    for shard in names:
        save_file({name: weights[name] for name in places if places[name] == shard}, folder / shard)
    (folder / "model.safetensors").unlink()
    write_json(folder / "model.safetensors.index.json", {"weight_map": places})
    store = Store(tmp_path / "home")
    model = store.add(folder)
    assert {path.name for path in model.folder.glob("*.safetensors*")} == {*names, "model.safetensors.index.json"}
    assert model.facts.files == "safetensors"
    (folder / names[1]).unlink()
    with pytest.raises(InvalidInput, match=f"names {names[1]}, which is not here"):
        store.add(folder)
