"""What is batched and what comes back: the payload between node and runtime, one entry an item."""

from typing import Literal

import msgspec

from shoal.protocol.errors import Fault
from shoal.protocol.facts import Kind
from shoal.protocol.tensors import Tensor

Truncate = Literal["end", "start", "error"]


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text, or one pair of texts, to put through a model.

    `prompt` is the prefix itself, already chosen by the task. `ids` are token ids without markers, given
    instead of `text`. `max_tokens` lowers the model's own limit (0 keeps it); `dims` asks for a shorter
    vector (0 keeps all) that is cut before it is normalised; `normalize` None keeps the model's own habit.
    `raw` asks for the logit itself instead of the activated score. `kinds` says which outputs are wanted of
    an encoder, `is_query` which side of a search the text is on, for models that treat the two differently.
    The kind "tokens" stands alone: the whole `prompt` and `text` are tokenised, and nothing is computed.
    `adapter` is the digest of the LoRA adapter that it is computed with; "" for the model as it is.
    """

    text: str = ""
    pair: str | None = None
    ids: list[int] | None = None
    prompt: str = ""
    truncate: Truncate = "end"
    max_tokens: int = 0
    dims: int = 0
    normalize: bool | None = None
    raw: bool = False
    kinds: tuple[Literal[Kind, "tokens"], ...] = ("dense",)
    is_query: bool | None = None
    adapter: str = ""

    @property
    def size_bytes(self) -> int:
        """A cheap proxy of cost before anything is tokenised (characters; ids count four each)."""
        return len(self.text) + len(self.pair or "") + len(self.prompt) + 4 * len(self.ids or ())


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one item: named tensors or a fault.

    "dense" [dims] fp32 · "score" [] fp32, or [labels] · "multivector" [tokens, dims] fp32 ·
    "sparse.indices" [n] int32, ascending, with "sparse.values" [n] fp32, all above 0 ·
    "tokens.ids" [n] int32, with "tokens.places" [n, 2] int32, from and to which character, -1 for markers.

    `tokens` counts what was really processed, markers included; `truncated` says text was cut off. `texts` are
    the tokens' own, where "tokens" were asked for.
    """

    tensors: dict[str, Tensor] = {}
    tokens: int = 0
    truncated: bool = False
    fault: Fault | None = None
    texts: list[str] = []
