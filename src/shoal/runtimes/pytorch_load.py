"""A model as sentence-transformers loads it from its folder: the transformer, and the modules on top of it.

Knows the library's classes and which of its modules are left to us. Does not know devices or batches.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentence_transformers as library
import torch
import transformers
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts

log = logging.getLogger("shoal.pytorch")
_POOLINGS = {
    "mean": "mean", "cls": "cls", "max": "max", "mean_sqrt_len": "mean_sqrt_len_tokens",
    "last": "lasttoken", "weighted_mean": "weightedmean",
}  # fmt: skip


def load_modules(folder: Path, facts: Facts) -> tuple[Any, list[torch.nn.Module]]:
    """The transformer and the modules after it, in fp32 on the CPU. Raises ModelLoadFailed.

    What finish.py does is left out here: normalising, and which tokens count. The facts decide the pooling.
    """
    first, *heads = list(_load(folder, facts).children())
    if not isinstance(first, Transformer):
        raise ModelLoadFailed(f"models that begin with a {type(first).__name__} are not served")
    if "multivector" in facts.kinds:
        heads = [head for head in heads if isinstance(head, Dense)]
    while heads and isinstance(heads[-1], Normalize):
        heads.pop()
    for head in heads:
        if isinstance(head, Pooling):
            if not head.include_prompt:
                raise ModelLoadFailed("pooling that leaves the prompt out is not served")
            head.pooling_mode = _POOLINGS.get(facts.pooling, head.pooling_mode)
    return first, heads


def _load(folder: Path, facts: Facts) -> Any:
    if not facts.reads_pairs and len(facts.kinds) != 1:
        raise ModelLoadFailed(f"runtime pytorch gives one kind of output, not {', '.join(facts.kinds)}")
    kind = "score" if facts.reads_pairs else facts.kinds[0]
    opener = {
        "score": library.CrossEncoder, "dense": library.SentenceTransformer,
        "sparse": library.SparseEncoder, "multivector": library.MultiVectorEncoder,
    }[kind]  # fmt: skip
    missing: set[str] = set()
    transformers.utils.logging.set_verbosity_error()  # what matters of its reports is an error of ours
    transformers.utils.logging.disable_progress_bar()
    try:
        with _noting_missing(missing):
            model = opener(
                str(folder), device="cpu", trust_remote_code=False, local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": torch.float32},
            )  # fmt: skip
    except Exception as e:  # theirs share no narrower base
        log.exception("the libraries refuse a model")
        raise ModelLoadFailed(f"sentence-transformers cannot load this model: {type(e).__name__}: {e}") from e
    # A pooler that an encoder does not use may be missing; anything else would be random numbers.
    if lost := sorted(name for name in missing if kind == "score" or "pooler." not in name):
        raise ModelLoadFailed(f"the checkpoint lacks {len(lost)} weights, e.g. {lost[0]}")
    return model.eval()


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
