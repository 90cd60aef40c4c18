"""What a cross-encoder gives: one score or several labels, and through which activation; of a language model the
score that its LogitScore makes of one word.
"""

from typing import Any

from shoal.catalog.configs import Config
from shoal.catalog.generative import MODULES, check_generative
from shoal.catalog.layout import Layout, prompts, torch_name
from shoal.protocol.errors import InvalidInput

_ACTIVATIONS = ("identity", "sigmoid", "softmax")
_MOST_LABELS = 10_000
_BY_PROBLEM = {
    "multi_label_classification": "sigmoid",
    "single_label_classification": "softmax",
    "regression": "identity",
}


def is_scorer(layout: Layout) -> bool:
    """What sentence-transformers saved as a CrossEncoder, or a sequence classifier that it did not save as an
    encoder.
    """
    if layout.sentence.model_type == "CrossEncoder":
        return True
    is_classifier = any(name.endswith("ForSequenceClassification") for name in layout.architectures)
    return is_classifier and not any(module.kind == "Pooling" for module in layout.modules or ())


def scorer(layout: Layout, config: Config) -> dict[str, object]:
    """1. The activation that was saved; else 2. one label goes through a sigmoid; 3. several as config.json's
    `problem_type` says; 4. else they stay logits, as in sentence-transformers.
    """
    kinds = [module.kind for module in layout.modules or ()]
    if kinds == MODULES:
        check_generative(layout, config)
        return {"tasks": ["score"], "activation": _activation(layout, config, 1), **prompts(layout.sentence)}
    if kinds not in ([], ["Transformer"]) or any("CausalLM" in name for name in layout.architectures):
        raise InvalidInput(
            f"a scorer of {', '.join(kinds or layout.architectures)} is not known here; known: a sequence "
            "classifier alone, as its Transformer module, or a language model with a LogitScore"
        )
    labels = _labels(config)
    activation = _activation(layout, config, len(labels))
    return {"tasks": ["score"], "activation": activation, "labels": labels if len(labels) > 1 else []}


def _activation(layout: Layout, config: Config, labels: int) -> str:
    """Numbered as above. Raises InvalidInput for one that is not known here."""
    saved: Any = (config.sentence_transformers or {}).get("activation_fn")
    name = saved or layout.sentence.activation_fn or config.sbert_ce_default_activation_function
    if name:  # 1
        activation = torch_name(name)
    elif labels == 1:  # 2
        activation = "sigmoid"
    else:  # 3, 4
        activation = _BY_PROBLEM.get(config.problem_type or "", "identity")
    if activation not in _ACTIVATIONS or (activation == "softmax" and labels == 1):
        raise InvalidInput(
            f"scores through {name} are not known here; known: Identity, Sigmoid, or Softmax of several"
        )
    return activation


def _labels(config: Config) -> list[str]:
    """In the order of the network's outputs. Raises InvalidInput where their numbers are not 0…n-1.

    transformers takes two where a file names none, and so names none where there are two.
    """
    named = config.id2label or {}
    if (config.num_labels or 0) > _MOST_LABELS or len(named) > _MOST_LABELS:
        raise InvalidInput(f"config.json says that there are more than {_MOST_LABELS} labels, which is not served")
    count = config.num_labels or len(named) or 2
    if not named:
        return [f"LABEL_{i}" for i in range(count)]
    if set(named) != {str(i) for i in range(count)}:
        raise InvalidInput(
            f"config.json names the labels {', '.join(sorted(named)[:5])} and says there are {count}"
        )
    return [named[str(i)] for i in range(count)]
