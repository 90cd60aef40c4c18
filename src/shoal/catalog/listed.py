"""What a card tells people about a model whose files they do not have yet: for lists and for choosing.

Nothing is served from it. What is served is read from the files (`Facts`), and wins where the two differ.
"""

from typing import Literal

import msgspec

from shoal.protocol.facts import Kind


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """0 and () stand for what was not looked up. `languages` are ISO 639 codes, two letters where there are two.

    `family` is config.json's `model_type`, which inspection maps to a file in families/.
    """

    task: Literal["encode", "score"]
    kinds: tuple[Kind, ...] = ()
    family: str = ""
    dims: int = 0
    """Width of a dense vector or of a token's; not that of the vocabulary which a sparse one is over."""
    max_tokens: int = 0
    parameters: int = 0
    languages: tuple[str, ...] = ()
