"""How items are cut into forward passes for an engine that pads every text to its batch's longest. Pure."""

from collections.abc import Sequence

import numpy as np

from shoal.protocol.facts import Profile

STEPS = 64
"""Neighbours in length are taken together, so that no more than about so many places to cut are weighed."""


def cut(lengths: Sequence[int], profile: Profile) -> list[list[int]]:
    """Micro-batches that take the least time in all, each a list of indices into `lengths` (tokens).

    Sorted by length, each is a stretch of neighbours and costs fixed_price + padding_price × count × longest.
    best[j], of all up to step j, is the least over i < j of best[i] and one micro-batch from i to j.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    ends = _steps([lengths[index] for index in order], profile)
    longest = [lengths[order[end - 1]] for end in ends]
    starts = np.array([0, *ends])
    best = np.zeros(len(starts))
    came_from = np.zeros(len(starts), int)
    for j, (end, length) in enumerate(zip(ends, longest, strict=True), 1):
        counts = end - starts[:j]
        price = best[:j] + profile.fixed_price + counts * length * profile.padding_price
        price += counts * length**2 * profile.square_price
        is_over = (counts > profile.batch_items) | (counts * length > profile.batch_tokens)
        is_over[-1] = False  # a step fits, or is a text that goes alone
        came_from[j] = int(np.argmin(np.where(is_over, np.inf, price)))
        best[j] = price[came_from[j]]
    cuts = []
    j = len(ends)
    while j:
        cuts.append(order[starts[came_from[j]] : starts[j]])
        j = int(came_from[j])
    return cuts


def about(lengths: Sequence[float], profile: Profile) -> tuple[int, float]:
    """About how many micro-batches `cut` makes of texts of these lengths, and how many tokens they compute.

    From the longest down, a micro-batch takes texts in until filling them up costs as much as another one.
    """
    batches, computed, held, longest, filled = 0, 0.0, 0, 0.0, 0.0
    for length in sorted(lengths, reverse=True):
        filled += longest - length
        is_over = held >= profile.batch_items or (held + 1) * longest > profile.batch_tokens
        if not held or is_over or filled * profile.padding_price > profile.fixed_price:
            batches, held, longest, filled = batches + 1, 0, length, 0.0
        held += 1
        computed += longest
    return batches, computed


def _steps(ascending: Sequence[int], profile: Profile) -> list[int]:
    """Where each step ends. None holds more than a micro-batch may."""
    most = min(-(-len(ascending) // STEPS), profile.batch_items)
    ends: list[int] = []
    start = 0
    for index, length in enumerate(ascending):
        held = index - start
        if held and (held >= most or (held + 1) * length > profile.batch_tokens):
            ends.append(index)
            start = index
    if ascending:
        ends.append(len(ascending))
    return ends
