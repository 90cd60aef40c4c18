"""What a stand-in pretends to be: `virtual.json` in a model's folder. The virtual runtime obeys it."""

from collections.abc import Sequence

import msgspec


class VirtualDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch takes `seconds`, and some a token and a squared length; all times are stretched `dilation` times.

    `padded`: every text of a batch costs as much as its longest; else each costs its own length. A share of
    batches stalls for `stall_seconds` more; which of them is told by `seed` and what they hold. `serial`: one
    batch at a time, whichever of a node's models it is for, as on a real accelerator; else as many as the profile
    has streams, for each model. `batch_items` and `batch_tokens` are the device's own, 0 for the profile's.
    """

    seconds: float = 0.001
    seconds_per_token: float = 0.000002
    seconds_per_square: float = 0.0
    padded: bool = False
    dilation: float = 1.0
    stall_share: float = 0.0
    stall_seconds: float = 0.0
    seed: int = 0
    serial: bool = False
    batch_items: int = 0
    batch_tokens: int = 0

    def laid_out(self, lengths: Sequence[int]) -> list[int]:
        """The lengths that are computed for texts of these."""
        return [max(lengths)] * len(lengths) if self.padded else list(lengths)

    def takes(self, lengths: Sequence[int]) -> float:
        """Seconds of a batch of texts of these lengths, without a stall."""
        computed = self.laid_out(lengths)
        squares = sum(n * n for n in computed)
        cost = self.seconds + self.seconds_per_token * sum(computed) + self.seconds_per_square * squares
        return cost * self.dilation
