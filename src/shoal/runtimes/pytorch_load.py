"""A model as the modules of sentence-transformers, from its folder: the transformer, and what is put on top of it.

Knows the library's classes and what is left to finish.py: normalising, and which tokens count. Does not know
devices or batches.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SpladePooling

from shoal.families.heads import read_projection, sparse_facts
from shoal.families.linears import Linear, read_linears
from shoal.protocol.errors import ModelLoadFailed, ShoalError
from shoal.protocol.facts import Facts

log = logging.getLogger("shoal.pytorch")
Heads = dict[str, list[torch.nn.Module]]
_POOLINGS = {
    "mean": "mean", "cls": "cls", "max": "max", "mean_sqrt_len": "mean_sqrt_len_tokens",
    "last": "lasttoken", "weighted_mean": "weightedmean",
}  # fmt: skip
_SPLADE = {"log1p_relu": "relu", "log1p_log1p_relu": "log1p_relu"}
"""The library always takes one log, and does not say so."""
_ACTIVATIONS = {
    "identity": torch.nn.Identity, "tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "gelu": torch.nn.GELU,
    "sigmoid": torch.nn.Sigmoid, "silu": torch.nn.SiLU,
}  # fmt: skip
_OPENING = {"trust_remote_code": False, "local_files_only": True}
_WEIGHTS = {"use_safetensors": True, "dtype": torch.float32}


def load_modules(folder: Path, facts: Facts) -> tuple[Any, Heads]:
    """The transformer, and for each output the modules after it; fp32, on the CPU. Raises ModelLoadFailed."""
    missing: set[str] = set()
    transformers.utils.logging.set_verbosity_error()  # what matters of its reports is an error of ours
    transformers.utils.logging.disable_progress_bar()
    try:
        with _noting_missing(missing):
            is_whole = facts.reads_pairs or facts.kinds == ("dense",)
            transformer, heads = (_whole if is_whole else _by_kind)(folder, facts)
    except ShoalError:
        raise
    except Exception as e:  # theirs share no narrower base
        log.exception("the libraries refuse a model")
        raise ModelLoadFailed(f"sentence-transformers cannot load this model: {type(e).__name__}: {e}") from e
    # A pooler that an encoder does not use may be missing; anything else would be random numbers.
    if lost := sorted(name for name in missing if facts.reads_pairs or "pooler." not in name):
        raise ModelLoadFailed(f"the checkpoint lacks {len(lost)} weights, e.g. {lost[0]}")
    for module in (transformer, *(head for chain in heads.values() for head in chain)):
        module.eval()
    return transformer, heads


def _whole(folder: Path, facts: Facts) -> tuple[Any, Heads]:
    """As the library opens a folder of this kind, with whatever modules it has. The facts decide the pooling."""
    opener = CrossEncoder if facts.reads_pairs else SentenceTransformer
    first, *heads = opener(str(folder), device="cpu", model_kwargs=_WEIGHTS, **_OPENING).children()
    if not isinstance(first, Transformer):
        raise ModelLoadFailed(f"models that begin with a {type(first).__name__} are not served")
    if first.transformer_task == "text-generation":
        _check_generative(folder, first, heads)
    elif first.transformer_task not in ("feature-extraction", "sequence-classification"):
        raise ModelLoadFailed(f"a model for {first.transformer_task} neither encodes nor scores here")
    while heads and isinstance(heads[-1], Normalize):
        heads.pop()
    for head in heads:
        if isinstance(head, Pooling):
            if not head.include_prompt:
                raise ModelLoadFailed("pooling that leaves the prompt out is not served")
            head.pooling_mode = _POOLINGS.get(facts.pooling, head.pooling_mode)
    return first, {"score" if facts.reads_pairs else "dense": heads}


def _check_generative(folder: Path, transformer: Any, heads: Sequence[torch.nn.Module]) -> None:
    """The library would take the words "yes" and "no" where a folder names none."""
    is_named = (folder / "modules.json").is_file() and [type(head) for head in heads] == [LogitScore]
    if not is_named or "message" not in transformer.modality_config:
        raise ModelLoadFailed(
            "a language model scores here through a chat template and a LogitScore of its own only"
        )
    (head,), words = heads, transformer.model.get_output_embeddings().weight.shape[0]
    assert isinstance(head, LogitScore), "as asked above"
    highest = max(head.true_token_id, head.false_token_id or 0)
    if highest >= words:
        raise ModelLoadFailed(f"the score is to be read from token {highest}, the model has {words}")


def _by_kind(folder: Path, facts: Facts) -> tuple[Any, Heads]:
    """Put together from the facts: opened whole, what a folder lacks would be made up by the library."""
    if "sparse" in facts.kinds and len(facts.kinds) > 1:
        raise ModelLoadFailed("runtime pytorch gives sparse vectors and no others of one model")
    task = "fill-mask" if "sparse" in facts.kinds else "feature-extraction"
    transformer = Transformer(
        str(folder), transformer_task=task, model_kwargs=_WEIGHTS | _OPENING, processor_kwargs=dict(_OPENING),
        config_kwargs=dict(_OPENING),
    )  # fmt: skip
    makers = {"dense": _dense, "sparse": _sparse, "multivector": _multivector}
    return transformer, {kind: makers[kind](folder, facts, transformer) for kind in facts.kinds}


def _dense(folder: Path, facts: Facts, transformer: Any) -> list[torch.nn.Module]:
    if facts.pooling == "none":
        raise ModelLoadFailed("an encoder needs a pooling, mean or cls for instance; its files name none")
    pooling = Pooling(transformer.get_embedding_dimension(), _POOLINGS[facts.pooling])
    return [pooling, *_layers(read_linears(folder, facts.dense), "sentence_embedding")]


def _multivector(folder: Path, facts: Facts, transformer: Any) -> list[torch.nn.Module]:
    return _layers(read_projection(folder, facts), "token_embeddings")


def _sparse(folder: Path, facts: Facts, transformer: Any) -> list[torch.nn.Module]:
    asked = sparse_facts(facts)
    if asked.activation not in _SPLADE:
        raise ModelLoadFailed(f"runtime pytorch has no sparse activation {asked.activation}")
    return [SpladePooling(pooling_strategy=asked.pooling, activation_function=_SPLADE[asked.activation])]


def _layers(linears: Sequence[Linear], feature: str) -> list[torch.nn.Module]:
    return [
        Dense(
            linear.weight.shape[1], linear.weight.shape[0], bias=linear.bias is not None,
            activation_function=_ACTIVATIONS[linear.activation](), init_weight=torch.tensor(linear.weight),
            init_bias=None if linear.bias is None else torch.tensor(linear.bias), module_input_name=feature,
        )
        for linear in linears
    ]  # fmt: skip


@contextlib.contextmanager
def _noting_missing(missing: set[str]) -> Iterator[None]:
    """Weights that a checkpoint lacks are random in a loaded model, which transformers tells only if asked to,
    and sentence-transformers does not ask."""
    owner: Any = transformers.PreTrainedModel
    original = vars(owner)["from_pretrained"]

    def asking(cls: Any, *args: Any, **settings: Any) -> Any:
        model, told = original.__func__(cls, *args, **settings, output_loading_info=True)
        missing.update(told["missing_keys"])
        return model

    owner.from_pretrained = classmethod(asking)
    try:
        yield
    finally:
        owner.from_pretrained = original
