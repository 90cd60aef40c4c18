"""What a model is, read from the files beside its weights. Knows the formats, nothing of engines or families
but the names in `FAMILIES`; called by the store before a model is taken in.
"""

from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog.configs import Config, Module, Pooling, Sentence, TextModule, TokenizerConfig, read
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts

FAMILIES = {"bert": "bert"}
"""`model_type` of config.json → file in families/."""
_MAX_TOKENS = 1_000_000
"""A length above this means that its author set none."""


def read_facts(folder: Path, said: dict[str, object]) -> Facts:
    """The facts of the model in `folder`; what its card has `said` wins over what its files say.

    1. No tokenizer.json → refused. 2. Code of its own → refused. 3. Weights decide `files`. 4. Without a
    config.json the card has to say task and family. 5. A sequence classifier, or what sentence-transformers
    saved as a CrossEncoder, scores; 6. anything else encodes. Raises InvalidInput with the reason.
    """
    if not (folder / "tokenizer.json").is_file():  # 1
        raise InvalidInput(
            "no tokenizer.json here; save the fast tokenizer beside the weights "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(folder)`)"
        )
    config = read(folder, "config.json", Config)
    modules = read(folder, "modules.json", list[Module])
    tokenizer = read(folder, "tokenizer_config.json", TokenizerConfig) or TokenizerConfig()
    sentence = read(folder, "config_sentence_transformers.json", Sentence) or Sentence()
    text = read(folder, "sentence_bert_config.json", TextModule) or TextModule()
    _refuse_code(config, modules, tokenizer)  # 2
    found: dict[str, object] = {
        "files": "safetensors" if (folder / "model.safetensors").is_file() else "onnx",  # 3
        "lowercase": text.do_lower_case,
        **_prompts(sentence),
    }
    positions = config.max_position_embeddings if config is not None else None
    lengths = (text.max_seq_length, tokenizer.model_max_length, positions)
    if usable := [int(length) for length in lengths if length is not None and length <= _MAX_TOKENS]:
        found["max_tokens"] = min(usable)
    if config is not None:  # 4
        is_scorer = sentence.model_type == "CrossEncoder" or _is_classifier(config)
        found |= {} if "family" in said else {"family": _family(config)}
        found |= _scorer(config, sentence) if is_scorer else _encoder(folder, config, modules)  # 5, 6
    return settle(found, said)


def settle(found: dict[str, object], said: dict[str, object]) -> Facts:
    """Facts from what was found and what the card says. Raises InvalidInput for what is missing or absurd."""
    try:
        facts = msgspec.convert({**found, **said}, Facts)
    except msgspec.ValidationError as e:
        raise InvalidInput(
            f"neither this model's files nor its card say enough: {e} (config.json, modules.json and "
            "tokenizer_config.json say it, or the card's `facts`)"
        ) from e
    if not facts.tasks:
        raise InvalidInput("a model needs a task")
    if not 1 <= facts.max_tokens <= _MAX_TOKENS:
        raise InvalidInput(f"max_tokens of {facts.max_tokens} is outside 1…{_MAX_TOKENS}")
    if ("encode" in facts.tasks) != (facts.dims > 0) or any(
        not 0 < width < facts.dims for width in facts.matryoshka
    ):
        raise InvalidInput(f"vectors of {facts.dims} dims, or {list(facts.matryoshka)}, do not fit {facts.tasks}")
    if facts.default_prompt and facts.default_prompt not in facts.prompts:
        raise InvalidInput(f"the default prompt {facts.default_prompt!r} is none of {sorted(facts.prompts)}")
    return facts


def _refuse_code(config: Config | None, modules: list[Module] | None, tokenizer: TokenizerConfig) -> None:
    foreign = [module.type for module in modules or () if not module.type.startswith("sentence_transformers.")]
    if (config is not None and config.auto_map) or tokenizer.auto_map or foreign:
        what = foreign[0] if foreign else "auto_map"
        raise InvalidInput(
            f"this model brings Python code of its own ({what}), which is never run here; only models of a "
            f"family that is built in are served ({', '.join(sorted(FAMILIES))})"
        )


def _family(config: Config) -> str:
    if config.model_type not in FAMILIES:
        raise InvalidInput(
            f"models of type {config.model_type!r} are not known yet; known: {', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[config.model_type]


def _is_classifier(config: Config) -> bool:
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or ())


def _scorer(config: Config, sentence: Sentence) -> dict[str, object]:
    labels = config.num_labels or len(config.id2label or {"0": ""})
    if labels != 1:
        raise InvalidInput(f"this classifier has {labels} labels; a model that scores pairs has exactly one")
    saved: Any = (config.sentence_transformers or {}).get("activation_fn")
    name = saved or sentence.activation_fn or config.sbert_ce_default_activation_function or "Sigmoid"
    activation = str(name).rpartition(".")[2].lower()
    if activation not in ("identity", "sigmoid"):
        raise InvalidInput(f"scores through {name} are not known here; known: Identity and Sigmoid")
    return {"tasks": ["score"], "activation": activation}


def _encoder(folder: Path, config: Config, modules: list[Module] | None) -> dict[str, object]:
    """As sentence-transformers would load it: without modules.json the mean of the states, as it is."""
    if config.hidden_size is None:
        raise InvalidInput("config.json says no hidden_size")
    found: dict[str, object] = {"tasks": ["encode"], "dims": config.hidden_size, "pooling": "mean"}
    if modules is None:
        if not any(name.endswith("Model") for name in config.architectures or ()):
            raise InvalidInput(
                f"a model of {config.architectures} neither encodes nor scores; an encoder has a "
                "modules.json, or is saved as a plain …Model"
            )
        return found
    kinds = [module.kind for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InvalidInput(
            f"modules.json has {', '.join(kinds) or 'nothing'}; known: Transformer, Pooling, maybe Normalize"
        )
    pooling = _pooling(folder, modules[1].path, config.hidden_size)
    return {**found, "pooling": pooling, "normalize": kinds[-1] == "Normalize"}


def _pooling(folder: Path, path: str, hidden_size: int) -> str:
    # Only such folders are taken into the store (choice.py), and a path must not lead out of it.
    if not path[:1].isdigit() or "/" in path:
        raise InvalidInput(f"modules.json says that pooling is in {path!r}; a folder like 1_Pooling is expected")
    pooling = read(folder, f"{path}/config.json", Pooling)
    if pooling is None:
        raise InvalidInput(f"modules.json names {path}, but there is no {path}/config.json")
    width = pooling.embedding_dimension or pooling.word_embedding_dimension or hidden_size
    if width != hidden_size:
        raise InvalidInput(f"{path}/config.json says {width} dims, config.json {hidden_size}")
    if pooling.modes not in (["mean"], ["cls"]) or not pooling.include_prompt:
        how = "+".join(pooling.modes) + ("" if pooling.include_prompt else " without the prompt")
        raise InvalidInput(f"pooling by {how} is not known here; known: mean and cls")
    return pooling.modes[0]


def _prompts(sentence: Sentence) -> dict[str, object]:
    return {"prompts": sentence.prompts or {}, "default_prompt": sentence.default_prompt_name or ""}
