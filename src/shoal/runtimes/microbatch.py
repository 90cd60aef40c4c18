"""How prepared items are cut into forward passes. Pure; the host performs it whenever a stream is free."""

from collections.abc import Sequence


def cut(lengths: Sequence[int], *, pieces: int, max_items: int, max_tokens: int) -> list[list[int]]:
    """Micro-batches, each a list of indices into `lengths` (tokens), alike in length.

    1. Sort by exact length: neighbours pad little.
    2. Make at least `pieces` of them (idle streams), and as many as the caps ask for.
    3. Cut where the running sum of tokens passes an equal share, or a cap would be passed; an item over
       `max_tokens` goes alone.
    4. The piece with the oldest item (index 0) comes first, so that nothing is passed over for ever.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    wanted = min(len(order), count(len(order), sum(lengths), pieces, max_items, max_tokens))
    cuts: list[list[int]] = []
    left = sum(lengths)
    piece: list[int] = []
    held = 0
    for index in order:
        share = left / max(1, wanted - len(cuts))
        tokens = lengths[index]
        full = len(piece) >= max_items or held + tokens > max_tokens or held + tokens / 2 > share
        if piece and full:
            cuts.append(piece)
            left -= held
            piece, held = [], 0
        piece.append(index)
        held += tokens
    if piece:
        cuts.append(piece)
    return sorted(cuts, key=lambda members: 0 not in members)


def count(items: int, tokens: int, pieces: int, max_items: int, max_tokens: int) -> int:
    """About how many micro-batches that many items and tokens make."""
    return max(pieces, -(-items // max_items), -(-tokens // max_tokens))
