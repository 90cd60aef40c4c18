"""What the server bounds beyond what a single API defines; its settings may replace these defaults."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`max_items`: entries one request may hold, counted after decoding and before any model is loaded."""

    max_items: int = 10_000
