"""How a text is marked, limited and filled up: alike for most models; by the side of a search for those with a
vector a token (ColBERT, arXiv:2004.12832), and for those that look a query's terms up instead of computing them.
"""

import msgspec
from tokenizers import Tokenizer

from shoal.families import Prepared
from shoal.families.markers import Markers, learn_markers
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item

_MASKS = ("[MASK]", "<mask>")


class Side(msgspec.Struct, frozen=True):
    """`max_tokens` with the markers. A text is filled up to `fill_to` with `filler`, which no token looks at
    unless `looks_at_filler`. Tokens of `skip` give no vector."""

    markers: Markers
    max_tokens: int
    fill_to: int = 0
    filler: int = 0
    looks_at_filler: bool = False
    skip: frozenset[int] = frozenset()

    def prepared(self, item: Item, texts: list[list[int]], truncated: bool) -> Prepared:
        """`texts` are token ids that fit."""
        ids, segments = self.markers.join(texts)
        missing = max(0, min(self.fill_to, item.max_tokens or self.fill_to) - len(ids))
        ids += [self.filler] * missing
        segments += [0] * missing
        kept = [place for place, token in enumerate(ids) if token not in self.skip] if self.skip else None
        return Prepared(item, ids, segments, truncated, 0 if self.looks_at_filler else missing, kept)


class Sides:
    """Raises ModelLoadFailed where the tokenizer lacks a marker, or does not mark a text's ends as it has to."""

    def __init__(self, tokenizer: Tokenizer, facts: Facts) -> None:
        markers = learn_markers(tokenizer, 1)
        self._both = Side(markers, facts.max_tokens)
        self._pair = Side(learn_markers(tokenizer, 2), facts.max_tokens) if facts.reads_pairs else self._both
        self._looked_up = Side(Markers(([], []), ([], []), (0,)), facts.max_tokens)
        self._table = facts.sparse is not None and facts.sparse.queries == "table"
        self._document = self._query = self._both
        if facts.multivector is not None:
            self._document, self._query = _of_token_vectors(tokenizer, markers, facts)

    @property
    def segments(self) -> int:
        """How many there are of them."""
        return 1 + max(n for side in self._all() for n in side.markers.all_segments())

    @property
    def highest_marker(self) -> int:
        ids = [token for side in self._all() for part in side.markers.around for token in part]
        return max((*ids, *(side.filler for side in self._all())))

    def _all(self) -> tuple[Side, ...]:
        return (self._both, self._pair, self._document, self._query)

    def of(self, item: Item) -> Side:
        if item.pair is not None:
            return self._pair
        if "multivector" in item.kinds:
            return self._query if item.is_query else self._document
        return self._looked_up if self._table and item.is_query and "sparse" in item.kinds else self._both


def _of_token_vectors(tokenizer: Tokenizer, markers: Markers, facts: Facts) -> tuple[Side, Side]:
    """For a document and for a query."""
    asked = facts.multivector
    assert asked is not None
    words = ((word, tokenizer.token_to_id(word)) for word in asked.skip)
    document = Side(
        _marked(tokenizer, markers, asked.document_marker),
        min(asked.document_tokens or facts.max_tokens, facts.max_tokens),
        skip=frozenset(token for _, token in words if token is not None),
    )
    limit = min(asked.query_tokens or facts.max_tokens, facts.max_tokens)
    query = Side(
        _marked(tokenizer, markers, asked.query_marker),
        limit,
        fill_to=limit if asked.expand else 0,
        filler=_mask_token(tokenizer) if asked.expand else 0,
        looks_at_filler=asked.attend_to_expansion,
    )
    return document, query


def _marked(tokenizer: Tokenizer, markers: Markers, marker: str) -> Markers:
    """`markers` with one more token after the first."""
    if not marker:
        return markers
    token = tokenizer.token_to_id(marker)
    if token is None:
        raise ModelLoadFailed(f"the tokenizer has no token {marker!r}, which is to mark a side of the search")
    return markers.with_second(token)


def _mask_token(tokenizer: Tokenizer) -> int:
    found = [token for token in map(tokenizer.token_to_id, _MASKS) if token is not None]
    if not found:
        raise ModelLoadFailed(f"queries are to be filled up, but the tokenizer has none of {', '.join(_MASKS)}")
    return found[0]
