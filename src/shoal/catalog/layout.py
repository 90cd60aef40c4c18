"""The small files of one model, read once and together, and what they say that any kind of model needs: its
length, its prompts, and whether it would run code of its own.
"""

from pathlib import Path
from typing import Any

import msgspec

from shoal.catalog.configs import Config, Module, Sentence, TextModule, TokenizerConfig, read
from shoal.catalog.known import ON_PYTORCH, built_in, family_of, has_offset_positions, is_own_code_replaced
from shoal.protocol.errors import InvalidInput

MAX_TOKENS = 1_000_000
"""A length above this means that its author set none."""
_TRUSTED = ("sentence_transformers.", "pylate.models.Dense.")


class Layout(msgspec.Struct, frozen=True):
    """`is_whole`: the weights are there too, not only the files that describe them."""

    folder: Path
    config: Config | None
    modules: list[Module] | None
    tokenizer: TokenizerConfig
    sentence: Sentence
    text: TextModule
    is_whole: bool

    @property
    def architectures(self) -> list[str]:
        return (self.config.architectures if self.config else None) or []

    @property
    def hidden_size(self) -> int:
        """Raises InvalidInput where config.json does not say it."""
        found = self.config and (
            self.config.hidden_size or self.config.dim or self.config.n_embd or self.config.d_model
        )
        if not found:
            raise InvalidInput("config.json says no hidden_size")
        return found


def read_layout(folder: Path, *, is_whole: bool = True) -> Layout:
    """Raises InvalidInput where a file is not what its name says, or names code."""
    layout = Layout(
        folder,
        read(folder, "config.json", Config),
        read(folder, "modules.json", list[Module]),
        read(folder, "tokenizer_config.json", TokenizerConfig) or TokenizerConfig(),
        read(folder, "config_sentence_transformers.json", Sentence) or Sentence(),
        read(folder, "sentence_bert_config.json", TextModule) or TextModule(),
        is_whole,
    )
    _refuse_code(layout)
    return layout


def family(config: Config) -> str:
    found = family_of(config.model_type)
    if found is None:
        raise InvalidInput(
            f"models of type {config.model_type!r} are not known yet; known: {', '.join(built_in())}, and with "
            f"PyTorch {', '.join(sorted(ON_PYTORCH))}"
        )
    return found


def max_tokens(layout: Layout) -> int | None:
    """The least that any file sets, None where none does."""
    lengths = (layout.text.max_seq_length, layout.tokenizer.model_max_length, positions(layout.config))
    usable = [int(length) for length in lengths if length is not None and length <= MAX_TOKENS]
    return min(usable, default=None)


def prompts(sentence: Sentence) -> dict[str, object]:
    named = {name: prompt for name, prompt in (sentence.prompts or {}).items() if prompt is not None}
    return {"prompts": named, "default_prompt": sentence.default_prompt_name or ""}


def torch_name(path: Any) -> str:
    """`torch.nn.modules.linear.Identity` → `identity`."""
    return str(path).rpartition(".")[2].lower()


def positions(config: Config | None) -> int | None:
    """How many tokens the network has places for, None where config.json does not say."""
    if config is None:
        return None
    positions = config.max_position_embeddings or config.n_positions
    if positions is not None and has_offset_positions(config.model_type):
        return max(positions - (1 if config.pad_token_id is None else config.pad_token_id) - 1, 1)
    return positions


def _refuse_code(layout: Layout) -> None:
    config = layout.config
    foreign = [module.type for module in layout.modules or () if not module.type.startswith(_TRUSTED)]
    own = config is not None and config.auto_map and not is_own_code_replaced(config.model_type)
    if own or layout.tokenizer.auto_map or foreign:
        what = foreign[0] if foreign else "auto_map"
        raise InvalidInput(
            f"this model brings Python code of its own ({what}), which is never run here; only models of a "
            f"family that is built in are served ({', '.join(built_in())})"
        )
