"""What is told to a caller who wants to know why a call takes long: what came of the last attempt, before each
further one."""

from collections.abc import Callable

from shoal.client.flow import ConnectionFailed, Received, Sleep, Terms
from shoal.client.refusals import no_answer, refusal
from shoal.protocol.errors import ShoalError

OnWait = Callable[[ShoalError, float], None]
"""Told what the last attempt came to, and for how many seconds at most attempts go on."""


def tell(sleep: Sleep, terms: Terms, on_wait: OnWait | None) -> None:
    """Called by whoever drives a flow, before it sleeps."""
    if on_wait is None:
        return
    after = sleep.after
    if isinstance(after, Received):
        after = refusal(after, terms)
    elif isinstance(after, ConnectionFailed):
        after = no_answer(after, terms)
    on_wait(after, sleep.most_s)
