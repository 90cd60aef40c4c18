"""A language model that scores a pair: after a chat template the logit of one word, less that of another, as
sentence-transformers saves it (Transformer, then LogitScore). Says whether its files are such, and complete.
"""

from shoal.catalog.configs import Config, LogitScoreConfig, read
from shoal.catalog.known import DECODERS
from shoal.catalog.layout import Layout
from shoal.catalog.pooling import module_folder
from shoal.protocol.errors import InvalidInput

MODULES = ["Transformer", "LogitScore"]
_LOGITS = "causal_logits"
_LENGTHS = {"max_length", "truncation"}


def check_generative(layout: Layout, config: Config) -> None:
    """Raises InvalidInput for a kind that is not computed so, for words that the model has not got, and for a
    template that is missing or would be left out.
    """
    if config.model_type not in DECODERS or not all(name.endswith("ForCausalLM") for name in layout.architectures):
        named = ", ".join(layout.architectures) or config.model_type
        raise InvalidInput(
            f"a {named} with a LogitScore is not served; language models of these types are: "
            f"{', '.join(sorted(DECODERS))}"
        )
    if (layout.folder / "model.onnx").is_file():
        raise InvalidInput("a language model with a LogitScore is served from safetensors, not from ONNX")
    _check_words(layout, config)
    _check_template(layout)


def _check_words(layout: Layout, config: Config) -> None:
    path = module_folder((layout.modules or [])[1].path)
    head = read(layout.folder, f"{path}/config.json", LogitScoreConfig)
    if head is None:
        raise InvalidInput(f"modules.json names {path}, but there is no {path}/config.json")
    if head.module_input_name != _LOGITS:
        raise InvalidInput(f"{path}/config.json works on {head.module_input_name!r}, not on {_LOGITS!r}")
    if head.true_token_id == head.false_token_id:
        raise InvalidInput(f"{path}/config.json takes the logit of token {head.true_token_id} from itself")
    highest = max(head.true_token_id, head.false_token_id or 0)
    if config.vocab_size is None or highest >= config.vocab_size:
        raise InvalidInput(
            f"{path}/config.json names token {highest}, config.json a vocabulary of {config.vocab_size or 0}"
        )


def _check_template(layout: Layout) -> None:
    if not layout.tokenizer.chat_template and not (layout.folder / "chat_template.jinja").is_file():
        raise InvalidInput(
            "a language model that scores needs a chat template with a query and a document, in "
            "chat_template.jinja or tokenizer_config.json; there is none"
        )
    text = layout.text
    if text.transformer_task != "text-generation" or (text.module_output_name or _LOGITS) != _LOGITS:
        raise InvalidInput(
            f"sentence_bert_config.json says the task {text.transformer_task!r} and the output "
            f"{text.module_output_name!r}; a LogitScore needs text-generation and {_LOGITS}"
        )
    if text.modality_config is not None and "message" not in text.modality_config:
        raise InvalidInput(
            "sentence_bert_config.json leaves the chat template out (no `message` among its modalities)"
        )
    settings = (text.processing_kwargs or {}).values()
    if any(not _LENGTHS.isdisjoint(setting) for setting in settings if isinstance(setting, dict)):
        raise InvalidInput(
            "sentence_bert_config.json sets lengths in its processing_kwargs; max_seq_length is what is read here"
        )
