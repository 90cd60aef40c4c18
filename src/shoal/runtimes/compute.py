"""One runtime's work made safe: whatever it raises or returns, every item gets exactly one output.

Runs on the host's threads; knows nothing of sockets. Of which request an item is (`jobs`) it only says in the log.
"""

import logging
import math
import time
from collections.abc import Sequence

import numpy as np

from shoal.observe import log as logs
from shoal.protocol.errors import InferenceError, InternalError, NonFiniteOutput, ShoalError
from shoal.protocol.frames import Measured
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Array, Tensor
from shoal.runtimes import Prepared, Ran, Read, Runtime

log = logging.getLogger("shoal.host")


def prepare(runtime: Runtime, items: Sequence[Item], jobs: Sequence[str]) -> list[Read]:
    """As many entries as items. If the whole list raises, each is tried alone: only the offender fails."""
    try:
        entries = runtime.prepare(items)
        if len(entries) != len(items):
            raise InternalError(f"{len(entries)} prepared of {len(items)} items")
        return entries
    except BaseException as error:  # a panic in the tokenizer is no Exception
        if len(items) > 1:
            return [e for item, job in zip(items, jobs, strict=True) for e in prepare(runtime, [item], [job])]
        log.exception("an item could not be prepared", extra=logs.fields(request=jobs[0]))
        return [error if isinstance(error, ShoalError) else InternalError("the item could not be tokenised")]


def compute(
    runtime: Runtime, batch: Sequence[Prepared], stream: int, jobs: Sequence[str]
) -> tuple[list[Output], Measured | None]:
    """As many outputs as items, in order, every value finite. Out of memory or broken: halve and try again. What
    is not finite runs again alone: where texts are padded to each other, NaN times a weight of 0 is NaN next door
    too.
    """
    began_at, began = time.time(), time.perf_counter()
    try:
        ran = runtime.run(batch, stream)
        if len(ran.rows) != len(batch):
            raise InferenceError(f"the runtime gave {len(ran.rows)} rows for {len(batch)} items")
    except BaseException as error:
        if len(batch) > 1:
            half = len(batch) // 2
            first, _ = compute(runtime, batch[:half], stream, jobs[:half])
            second, _ = compute(runtime, batch[half:], stream, jobs[half:])
            return first + second, None
        log.exception("an item could not be computed", extra=logs.fields(request=jobs[0]))
        return [Output(tokens=batch[0].tokens, fault=_fault_of(error).fault())], None
    seconds = time.perf_counter() - began
    outputs = [_output(prepared, row) for prepared, row in zip(batch, ran.rows, strict=True)]
    if len(batch) > 1:
        again = [i for i, output in enumerate(outputs) if output.fault is not None]
        for i in again:
            (outputs[i],), _ = compute(runtime, [batch[i]], stream, [jobs[i]])
    return outputs, _measured(batch, ran, seconds if ran.seconds is None else ran.seconds, began_at)


def _fault_of(error: BaseException) -> ShoalError:
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, MemoryError):
        return InferenceError("out of memory for this item alone")
    return InferenceError("the runtime failed on this item; the log has the details")


def _output(prepared: Prepared, row: dict[str, Array]) -> Output:
    for name, values in row.items():
        flat = values.reshape(-1)
        # The sum of squares says it sooner, but where numbers are so great that it is not finite itself.
        if not (math.isfinite(np.dot(flat, flat)) or np.isfinite(flat).all()):
            fault = NonFiniteOutput(f"the model gave a {name} that is not finite for this item").fault()
            return Output(tokens=prepared.tokens, truncated=prepared.truncated, fault=fault)
    tensors = {name: Tensor.of(values) for name, values in row.items()}
    return Output(tensors, prepared.tokens, prepared.truncated)


def _measured(batch: Sequence[Prepared], ran: Ran, seconds: float, began: float) -> Measured:
    square = sum(prepared.tokens**2 for prepared in batch)
    return Measured(len(batch), ran.tokens, square, seconds, began=began)
