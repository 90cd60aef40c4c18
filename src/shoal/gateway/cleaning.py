"""What nobody needs in the object store goes after a day: uploads that were not finished, models of no name."""

import asyncio
import logging
import random

from shoal.catalog.registry import Registry
from shoal.catalog.sweeping import sweep
from shoal.observe import log as logs
from shoal.protocol.errors import ShoalError

log = logging.getLogger("shoal.gateway")
EVERY_S = 3600.0
KEPT_S = 24 * 3600.0
"""Longer than any push takes."""


async def clean(registry: Registry, every_s: float = EVERY_S, kept_s: float = KEPT_S) -> None:
    """Until cancelled. Several gateways do it at times of their own, and none minds the others."""
    while True:
        await asyncio.sleep(every_s * random.uniform(0.5, 1))  # noqa: S311  # no secret
        try:
            removed = await sweep(registry, kept_s)
        except ShoalError as error:
            log.warning("the object store was not swept", extra=logs.fields(reason=error.message))
            continue
        if removed:
            log.info("the object store was swept", extra=logs.fields(objects=removed))
