"""The files beside a model's weights, as structs: only what we read of them, checked as they are decoded.

Formats are those of transformers and sentence-transformers, as written by releases 2 to 6 of the latter.
"""

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from shoal.protocol.errors import InvalidInput

_MAX_BYTES = 16 * 1024 * 1024
Count = Annotated[int, Meta(ge=1)]


class Config(Struct):
    """config.json"""

    model_type: str = ""
    architectures: list[str] | None = None
    hidden_size: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    max_position_embeddings: Count | None = None
    num_labels: Count | None = None
    id2label: dict[str, str] | None = None
    auto_map: dict[str, Any] | None = None
    sbert_ce_default_activation_function: str | None = None
    sentence_transformers: dict[str, Any] | None = None


class Module(Struct):
    """An entry of modules.json. `type` is a Python class by its full name."""

    type: str
    path: str = ""

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


class Pooling(Struct):
    """1_Pooling/config.json. One `pooling_mode` since release 5.4, a boolean for each mode before."""

    embedding_dimension: Count | None = None
    word_embedding_dimension: Count | None = None
    pooling_mode: str | list[str] | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True

    @property
    def modes(self) -> list[str]:
        """Names of the modes in force; mean, the library's default, where the file names none."""
        if self.pooling_mode is not None:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        flags = {
            "cls": self.pooling_mode_cls_token,
            "mean": self.pooling_mode_mean_tokens,
            "max": self.pooling_mode_max_tokens,
            "mean_sqrt_len_tokens": self.pooling_mode_mean_sqrt_len_tokens,
            "weightedmean": self.pooling_mode_weightedmean_tokens,
            "lasttoken": self.pooling_mode_lasttoken,
        }
        return [mode for mode, is_set in flags.items() if is_set] or ["mean"]


class TextModule(Struct):
    """sentence_bert_config.json"""

    max_seq_length: Count | None = None
    do_lower_case: bool = False


class Sentence(Struct):
    """config_sentence_transformers.json"""

    model_type: str = ""
    prompts: dict[str, Annotated[str, Meta(max_length=8192)]] | None = None
    default_prompt_name: str | None = None
    activation_fn: str | None = None


class TokenizerConfig(Struct):
    """tokenizer_config.json. `model_max_length` is 10³⁰ where its author set none."""

    model_max_length: Annotated[float, Meta(ge=1)] | None = None
    auto_map: dict[str, Any] | None = None


T = TypeVar("T")


def read(folder: Path, name: str, kind: type[T]) -> T | None:
    """The file `name` as a `kind`, None if there is none. Raises InvalidInput where it is no such thing."""
    path = folder / name
    if not path.is_file():
        return None
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise InvalidInput(f"{name} has {size} bytes; no such file has more than {_MAX_BYTES}")
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InvalidInput(f"{name}: {e}") from e
