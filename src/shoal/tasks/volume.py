"""How many numbers a request may ask for where every token gets a vector: a body of 30 MB could ask for 10 GB."""

from collections.abc import Iterable

from shoal.protocol.errors import PayloadTooLarge
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item
from shoal.tasks import Entry

MOST_SENT = 2**25
"""In an answer: 134 MB as fp32, ten times that in JSON."""
MOST_HELD = 2**26
"""To be scored: 268 MB, which do not leave the node. 1000 documents of 512 tokens by 128 dims fit."""
_MARKERS = 4


def check_volume(entries: Iterable[Entry], facts: Facts, most: int) -> None:
    """Raises PayloadTooLarge where the items' token vectors might hold more than `most` numbers in all."""
    if facts.multivector is None:
        return
    dims = facts.multivector.dims
    items = (entry for entry in entries if isinstance(entry, Item) and "multivector" in entry.kinds)
    seen = sum(_most_tokens(item, facts) for item in items) * dims
    if seen > most:
        raise PayloadTooLarge(
            f"the texts may give {seen // dims} token vectors of {dims} dims, over the limit of {most // dims}; "
            "send them in parts",
            limit=most // dims,
            seen=seen // dims,
        )


def _most_tokens(item: Item, facts: Facts) -> int:
    """As many as the model reads, or as the text has bytes."""
    asked = facts.multivector
    assert asked is not None
    own = asked.query_tokens if item.is_query else asked.document_tokens
    limit = min(own or facts.max_tokens, item.max_tokens or facts.max_tokens, facts.max_tokens)
    if item.is_query and asked.expand:
        return limit
    letters = len(item.prompt) + len(item.text)
    size = letters if item.text.isascii() and item.prompt.isascii() else 4 * letters
    return min(limit, _MARKERS + (len(item.ids) if item.ids is not None else size))
