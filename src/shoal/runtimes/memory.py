"""Memory that was freed goes back to the system. glibc would keep it, in an arena for each thread, and a model
would be charged for the most that it ever needed. Where the C library has no such calls nothing happens.
"""

import ctypes

_ARENA_MAX = -8
"""mallopt's M_ARENA_MAX, see malloc.h."""


def share_one_arena() -> None:
    """For all threads of this process; called before there are any."""
    if (choose := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        choose(_ARENA_MAX, 1)


def give_back() -> None:
    """Takes a few milliseconds."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
