"""What can be asked, one file each. The folder is the registry: a module here with a `TASK` is a task.

A task turns a request into items and the outputs of those items back into a response. It knows what is
asked, never whose HTTP API asked it (dialects/) nor how a model computes it (families/).
"""

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any, Protocol

from shoal.protocol.errors import Fault, InvalidInput
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output

Entry = Item | Output | Fault
"""Something to compute, or what is already known of it: its output, or why there is none."""


class Task(Protocol):
    name: str

    def split(self, request: Any, facts: Facts) -> list[Entry]:
        """One entry per thing the answer is made from, in order.

        Raises InvalidInput (or another 4xx) where the request as a whole cannot be served by a model with
        these facts. Called before any model is loaded for the request.
        """
        ...

    def join(self, request: Any, facts: Facts, outputs: Sequence[Output]) -> Any:
        """The response, from as many outputs as `split` gave entries, in the same order."""
        ...


@functools.cache
def all_tasks() -> dict[str, Task]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = (getattr(importlib.import_module(f"{__name__}.{name}"), "TASK", None) for name in names)
    return {task.name: task for task in found if task is not None}


def task_named(name: str) -> Task:
    """Raises InvalidInput for a task that is not in this folder."""
    tasks = all_tasks()
    if name not in tasks:
        raise InvalidInput(f"no task named {name!r}; there are {', '.join(sorted(tasks))}")
    return tasks[name]
