"""Shoal serves a fleet of small models on hardware you own. Start with ARCHITECTURE.md.

The clients and what they raise are imported on first use, so that no other room pays for them.
"""

from typing import TYPE_CHECKING

from shoal.version import __version__

if TYPE_CHECKING:
    from shoal.client import AsyncClient, Client, ItemsFailed, ServerUnreachable, ShoalError

__all__ = ["AsyncClient", "Client", "ItemsFailed", "ServerUnreachable", "ShoalError", "__version__"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from shoal import client

        return getattr(client, name)
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")
