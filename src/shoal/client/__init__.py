"""How to ask a Shoal server from Python: `Client`, and `AsyncClient` with the same methods.

    with shoal.Client() as client:
        vectors = client.encode("some/model", ["one text", "another"])    # numpy, [2, dims]

`flow` holds a request's life without I/O (attempts, waits, giving up), `encoding`, `scoring` and `calls` what
can be asked; the two clients only drive them. Knows the native wire, and nothing of what is behind it.
"""

from shoal.client.answers import Sparse
from shoal.client.asynchronous import AsyncClient
from shoal.client.errors import BadAnswer, ItemsFailed, ServerUnreachable
from shoal.client.pushing import Pushed
from shoal.client.scoring import Ranked
from shoal.client.sync import Client
from shoal.protocol.errors import ShoalError

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ItemsFailed",
    "Pushed",
    "Ranked",
    "ServerUnreachable",
    "ShoalError",
    "Sparse",
]
