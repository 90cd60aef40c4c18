"""Language models that score a pair by the logit of a word, on the pytorch runtime, beside sentence-transformers.

Their weights are random, so that no ranking can be asked of them: that one makes sense was seen with no real one.
"""

import json
import urllib.request

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import torch
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from test_pytorch import configs, in_three_ways, opened, rows, worst, write_transformer
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from shoal.catalog.known import DECODERS
from shoal.catalog.store import Store
from shoal.protocol.errors import EmptyInput, InputTooLong, InvalidInput, ModelLoadFailed
from shoal.protocol.items import Item
from shoal.runtimes.compute import compute
from shoal.testing.server import serving

pytestmark = pytest.mark.models

LIMIT = 96
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = """{% set told = messages | selectattr("role", "eq", "system") | map(attribute="content") | first -%}
<|im_start|>system
{{ told | default("Does it fit?") }}<|im_end|>
<|im_start|>user
{% for message in messages if message.role in ("query", "document") -%}
{{ message.role }}: {{ message.content }}
{% endfor -%}
<|im_end|>
<|im_start|>assistant
"""
QUERY = "What is the capital of France?"
DOCUMENTS = [
    "a",
    "Paris is the capital of France.",
    "fish " * 40,
    "Fische für 鱼群 🐟!",
    "swim\n" * 300,
    "./fish.png",
]
PAIRS = [(QUERY, document) for document in DOCUMENTS]
PAIRS += [("fish " * 200, "swim " * 201), *(("fish", "fish " * n) for n in range(38, 56))]


def their_tokenizer(template: str | None) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE, as these models have, learned from a few words."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=320, special_tokens=MARKS, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([QUERY, TEMPLATE, *DOCUMENTS, "yes no"] * 3, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=MARKS[0], pad_token=MARKS[0], model_max_length=LIMIT,
        chat_template=template,
    )  # fmt: skip


def write_ranker(
    folder, kind: str = "qwen2", *, words=(7, 9), template: str | None = TEMPLATE, **saved
) -> CrossEncoder:
    """A random language model with a LogitScore, saved as a CrossEncoder saves itself; and opened again by it."""
    tokenizer = their_tokenizer(template)
    config = configs()[kind]
    config.vocab_size, config.max_position_embeddings = len(tokenizer), LIMIT
    write_transformer(folder / "plain", config, transformers.AutoModelForCausalLM)
    tokenizer.save_pretrained(folder / "plain")
    modules = [Transformer(str(folder / "plain"), transformer_task="text-generation"), LogitScore(*words)]
    CrossEncoder(modules=modules, device="cpu", **saved).save(str(folder / "saved"))
    return CrossEncoder(str(folder / "saved"), device="cpu")


def taken(folder):
    """As the catalog reads it."""
    return Store(folder / "home").add(folder / "saved", name="acme/ranker")


def items_of(pairs, **wishes) -> list[Item]:
    return [Item(query, pair=document, **wishes) for query, document in pairs]


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_a_language_model_gives_the_scores_of_sentence_transformers(tmp_path, kind):
    reference = write_ranker(tmp_path, kind)
    model = taken(tmp_path)
    assert (model.facts.tasks, model.facts.activation, model.facts.max_tokens) == (("score",), "sigmoid", LIMIT)
    expected = reference.predict(PAIRS)
    assert np.ptp(expected) > 0.01
    runtime = opened(model.folder, model.facts)
    for found in in_three_ways(runtime, items_of(PAIRS), "score"):
        assert worst(found, expected) <= 1e-4


def test_a_score_of_one_word_alone_and_without_an_activation_is_its_logit(tmp_path):
    reference = write_ranker(tmp_path, words=(7,), activation_fn=torch.nn.Identity())
    model = taken(tmp_path)
    assert model.facts.activation == "identity"
    for found in in_three_ways(opened(model.folder, model.facts), items_of(PAIRS), "score"):
        assert worst(found, reference.predict(PAIRS)) <= 1e-4


def test_an_instruction_is_the_templates_system_message(tmp_path):
    reference = write_ranker(tmp_path, prompts={"web": "Is it an answer?"}, default_prompt_name="web")
    model = taken(tmp_path)
    assert (model.facts.prompts, model.facts.default_prompt) == ({"web": "Is it an answer?"}, "web")
    told = "Rank fish first."
    runtime = opened(model.folder, model.facts)
    found = rows(runtime, items_of(PAIRS, prompt=told), "score")
    assert worst(found, reference.predict(PAIRS, prompt=told)) <= 1e-4
    assert worst(found, reference.predict(PAIRS)) > 1e-3


def test_a_pair_is_cut_where_the_template_lets_it_and_its_tokens_are_counted(tmp_path):
    reference = write_ranker(tmp_path)
    model = taken(tmp_path)
    runtime = opened(model.folder, model.facts)
    batch = runtime.prepare(items_of(PAIRS))
    whole = [
        len(reference.preprocess([pair], processing_kwargs={"text": {"truncation": False}})["input_ids"][0])
        for pair in PAIRS
    ]
    assert {LIMIT - 1, LIMIT, LIMIT + 1} & set(whole), "some are about as long as the limit"
    assert [p.tokens for p in batch] == [min(length, LIMIT) for length in whole]
    assert [p.truncated for p in batch] == [length > LIMIT for length in whole]
    outputs, _ = compute(runtime, batch, 0, [""] * len(batch))
    assert [output.tokens for output in outputs] == [p.tokens for p in batch]
    refused = runtime.prepare(items_of(PAIRS, truncate="error"))
    for length, entry in zip(whole, refused, strict=True):
        assert isinstance(entry, InputTooLong) == (length > LIMIT)
        if length > LIMIT:
            assert f"{length} tokens, over the limit of {LIMIT}" in entry.message


def test_a_lower_limit_of_a_request_is_the_librarys_max_length(tmp_path):
    reference = write_ranker(tmp_path)
    model = taken(tmp_path)
    found = rows(opened(model.folder, model.facts), items_of(PAIRS, max_tokens=60), "score")
    expected = reference.predict(PAIRS, processing_kwargs={"text": {"max_length": 60}})
    assert worst(found, expected) <= 1e-4


def test_what_cannot_be_laid_out_is_refused_and_its_neighbours_are_scored(tmp_path):
    write_ranker(tmp_path)
    model = taken(tmp_path)
    good = Item(QUERY, pair="Paris")
    wrong = {
        Item("", pair="Paris"): EmptyInput,
        Item(QUERY, pair=" "): EmptyInput,
        Item(QUERY): InvalidInput,
        Item(QUERY, pair="Paris", truncate="start"): InvalidInput,
        Item(QUERY, pair="Paris", max_tokens=5): InvalidInput,
    }
    first, *refused, last = opened(model.folder, model.facts).prepare([good, *wrong, good])
    assert [type(entry) for entry in refused] == list(wrong.values())
    assert first.ids == last.ids


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", "{{ raise_exception('no pairs') }}"])
def test_a_template_without_a_query_and_a_document_is_refused_at_load(tmp_path, template):
    write_ranker(tmp_path, template=template)
    model = taken(tmp_path)
    with pytest.raises(ModelLoadFailed, match="chat template"):
        opened(model.folder, model.facts)


def test_a_language_model_that_names_no_word_for_its_score_is_refused_at_load(tmp_path):
    write_ranker(tmp_path)
    facts = taken(tmp_path).facts
    (tmp_path / "saved" / "modules.json").unlink()
    with pytest.raises(ModelLoadFailed, match="LogitScore"):
        opened(tmp_path / "saved", facts)


def test_a_word_that_the_model_has_not_got_is_refused(tmp_path):
    write_ranker(tmp_path)
    facts = taken(tmp_path).facts
    path = tmp_path / "saved" / "1_LogitScore" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"true_token_id": 50_000}))
    with pytest.raises(ModelLoadFailed, match="token 50000"):
        opened(tmp_path / "saved", facts)
    with pytest.raises(InvalidInput, match="token 50000"):
        taken(tmp_path)


def test_a_folder_of_such_a_model_is_added_by_its_files_and_reranks(tmp_path):
    reference = write_ranker(tmp_path)
    taken(tmp_path)
    body = {"model": "acme/ranker", "query": QUERY, "documents": DOCUMENTS}
    with serving(tmp_path / "home") as server:
        request = urllib.request.Request(
            f"{server.url}/v1/rerank", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            results = json.load(reply)["results"]
    expected = reference.predict([(QUERY, document) for document in DOCUMENTS])
    assert [result["index"] for result in results] == np.argsort(-expected).tolist()
    for result in results:
        assert abs(result["relevance_score"] - expected[result["index"]]) <= 1e-4
