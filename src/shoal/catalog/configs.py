"""The files beside a model's weights, as structs: only what we read of them, checked as they are decoded.

Formats are those of transformers and sentence-transformers, as written by releases 2 to 6 of the latter.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from shoal.protocol.errors import InvalidInput

_MAX_BYTES = 16 * 1024 * 1024
Count = Annotated[int, Meta(ge=1)]
Width = Annotated[int, Meta(ge=1, le=65_536)]


class Config(Struct):
    """config.json"""

    model_type: str = ""
    architectures: list[str] | None = None
    hidden_size: Width | None = None
    dim: Width | None = None
    """DistilBERT's word for the width. `n_embd` and `n_positions` are GPT-2's and Nomic's, `d_model` is T5's."""
    n_embd: Width | None = None
    d_model: Width | None = None
    max_position_embeddings: Count | None = None
    n_positions: Count | None = None
    vocab_size: Count | None = None
    pad_token_id: Annotated[int, Meta(ge=0)] | None = None
    matryoshka_dimensions: list[int] | None = None
    num_labels: Count | None = None
    id2label: dict[str, str] | None = None
    problem_type: str | None = None
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


class PoolingConfig(Struct):
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


class DenseConfig(Struct):
    """2_Dense/config.json. The features' names are written since release 5.4."""

    in_features: Width
    out_features: Width
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: str | None = None
    module_output_name: str | None = None
    use_residual: bool = False


class NormalizeConfig(Struct):
    """2_Normalize/config.json, since release 5.4."""

    module_input_name: str | None = None


class SpladeConfig(Struct):
    """1_SpladePooling/config.json"""

    pooling_strategy: Literal["max", "sum"] = "max"
    activation_function: Literal["relu", "log1p_relu"] = "relu"


class LogitScoreConfig(Struct):
    """1_LogitScore/config.json, since release 5.4"""

    true_token_id: Annotated[int, Meta(ge=0)]
    false_token_id: Annotated[int, Meta(ge=0)] | None = None
    module_input_name: str = "causal_logits"


class RouterConfig(Struct):
    """router_config.json: the modules of each route, by the folders they are saved in, and their classes."""

    types: dict[str, str]
    structure: dict[str, list[str]]

    def kinds(self, route: str) -> list[str]:
        """The classes of a route's modules, without their packages."""
        return [self.types.get(name, "").rpartition(".")[2] for name in self.structure.get(route, ())]


class Expansion(Struct):
    """`query_expansion` of sentence_bert_config.json, since release 6."""

    strategy: str
    length: Count
    attend: bool = False
    token: str | None = None


class MaskConfig(Struct):
    """2_MultiVectorMask/config.json, since release 6."""

    skiplist_words: list[str] | None = None
    skiplist_tasks: list[str] | str | None = None
    keep_only_token_ids: list[int] | None = None


class Stanford(Struct):
    """artifact.metadata of Stanford's ColBERT. `…_token_id` hold tokens, not ids."""

    query_maxlen: Count = 32
    doc_maxlen: Count = 220
    dim: Width = 128
    query_token_id: str = "[unused0]"  # noqa: S105  a word of the vocabulary
    doc_token_id: str = "[unused1]"  # noqa: S105
    attend_to_mask_tokens: bool = False
    mask_punctuation: bool = True


class TextModule(Struct):
    """sentence_bert_config.json. The last three since release 5.4."""

    max_seq_length: Count | None = None
    do_lower_case: bool = False
    transformer_task: str | None = None
    query_length: Count | None = None
    document_length: Count | None = None
    query_expansion: Expansion | None = None
    module_output_name: Any = None
    modality_config: dict[str, Any] | None = None
    processing_kwargs: dict[str, Any] | None = None


class Sentence(Struct):
    """config_sentence_transformers.json. From `query_prefix` on, what PyLate adds."""

    model_type: str = ""
    prompts: dict[str, Annotated[str, Meta(max_length=8192)] | None] | None = None
    default_prompt_name: str | None = None
    activation_fn: str | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    query_length: Count | None = None
    document_length: Count | None = None
    do_query_expansion: bool | None = None
    attend_to_expansion_tokens: bool | None = None
    skiplist_words: list[str] | None = None


class TokenizerConfig(Struct):
    """tokenizer_config.json. `model_max_length` is 10³⁰ where its author set none."""

    model_max_length: Annotated[float, Meta(ge=1)] | None = None
    auto_map: dict[str, Any] | None = None
    chat_template: Any = None


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
