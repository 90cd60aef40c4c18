"""How prepared items are cut into forward passes. Pure; the host performs it whenever a stream is free."""

from collections.abc import Sequence

from shoal.protocol.facts import Profile
from shoal.runtimes import padded

ALIKE = 8
"""Texts are padded to a multiple of so many tokens."""


def cut(
    lengths: Sequence[int], pieces: int, profile: Profile, adapters: Sequence[str] | None = None
) -> list[list[int]]:
    """Micro-batches, each a list of indices into `lengths` (tokens), alike in length.

    1. Sort by exact length: neighbours pad little. Where there are several `adapters` (one an item), sort those
       that are padded alike by adapter: the fewer a micro-batch has, the less it is multiplied with.
    2. Make at least `pieces` of them (idle streams), and as many as the caps ask for.
    3. Cut where the running sum of tokens passes an equal share, or a cap would be passed; an item over
       `batch_tokens` goes alone.
    4. Cut, too, where padding attention to the next length would cost more than two passes' fixed price: of
       items spread evenly over their lengths, cutting saves half of that, and costs one.
    5. The piece with the oldest item (index 0) comes first, so that nothing is passed over for ever.

    Where padding has its price, 2 to 4 are left to `padded`.
    """
    if profile.padding_price:
        return sorted(padded.cut(lengths, profile), key=lambda members: 0 not in members)  # 5
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    if adapters is not None and len(several := sorted(set(adapters))) > 1:
        places = {adapter: place for place, adapter in enumerate(several)}
        order = sorted(order, key=lambda i: _by_adapter(lengths[i], places[adapters[i]]))
    left = sum(lengths)
    wanted = min(len(order), count(len(order), left, pieces, profile))
    cuts: list[list[int]] = []
    piece: list[int] = []
    held = square = 0
    for index in order:
        share = left / max(1, wanted - len(cuts))
        tokens = lengths[index]
        full = len(piece) >= profile.batch_items or held + tokens > profile.batch_tokens  # 2
        padding = profile.square_price * (len(piece) * tokens**2 - square)
        if piece and (full or held + tokens / 2 > share or padding > 2 * profile.fixed_price):  # 3, 4
            cuts.append(piece)
            left -= held
            piece, held, square = [], 0, 0
        piece.append(index)
        held += tokens
        square += tokens**2
    if piece:
        cuts.append(piece)
    return sorted(cuts, key=lambda members: 0 not in members)


def _by_adapter(length: int, place: int) -> tuple[int, int]:
    """Up and down in turns, so that one adapter's texts of two lengths stand together."""
    padded_to = -(-length // ALIKE)
    return padded_to, place if padded_to % 2 else -place


def count(items: int, tokens: int, pieces: int, profile: Profile) -> int:
    """About how many micro-batches that many items and tokens make."""
    return max(pieces, -(-items // profile.batch_items), -(-tokens // profile.batch_tokens))
