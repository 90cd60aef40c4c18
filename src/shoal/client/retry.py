"""How long to wait before the next attempt: what the server asked for, or a backoff. Pure."""

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

FIRST_S = 0.25
LONGEST_S = 8.0
SPREAD = 0.1
"""Clients told the same Retry-After come back spread over this share of it."""


def backoff_s(attempt: int, chance: float) -> float:
    """Seconds after failed attempt number `attempt` (from 1): doubling, the upper half of it random."""
    longest = min(FIRST_S * 2.0 ** min(attempt - 1, 30), LONGEST_S)
    return longest * (0.5 + 0.5 * chance)


def longest_s(attempt: int, attempts: int) -> float:
    """Seconds that backoffs take together at most, of failed attempts from number `attempt` to `attempts`."""
    return sum(backoff_s(number, 1.0) for number in range(attempt, attempts + 1))


def retry_after_s(headers: Mapping[str, str], wall: float, chance: float) -> float | None:
    """Seconds from a Retry-After header, a number or an HTTP date; None where it says nothing of use."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        seconds = _until(value, wall)
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    return seconds * (1 + SPREAD * chance)


def _until(date: str, wall: float) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    if moment.tzinfo is None:  # "-0000": the header's dates are in UTC whatever they say
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() - wall
