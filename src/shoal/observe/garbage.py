"""How often Python looks for cycles of garbage."""

import gc


def collect_seldom() -> None:
    """What stands now stays out of every later search, and these come a hundred times less often: a request leaves
    no cycles, and searching was a tenth of what it cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
