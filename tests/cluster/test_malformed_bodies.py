"""Bodies that no client should send, on every computing route of a running server."""

import asyncio

import httpx
import pytest

from names import VIRTUAL, VIRTUAL_RERANKER
from shoal.dialects import all_dialects
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import ShoalError
from shoal.testing.malformed import malformed
from shoal.testing.server import serving

QUICK, ALL = 3000, 100_000
ROUTES = {route.name: (dialect, route) for dialect in all_dialects().values() for route in dialect.routes}


def is_valid(route: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether a mutation happens to be a request that may well be served."""
    dialect, found = ROUTES[route]
    envelope = Envelope(
        id="x", task=found.task, model="m", line="m", dialect=dialect.name, route=route, deadline=0, received=0,
        content_type=headers.get("content-type", ""), accept=headers.get("accept", ""),
    )  # fmt: skip
    try:
        dialect.decode(envelope, body)
    except ShoalError:
        return False
    return True


@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_malformed_bodies_get_a_4xx_within_time_and_load_no_model(virtual_home, route):
    await send_malformed(virtual_home, route, range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_so_do_a_hundred_thousand_over_all_routes(virtual_home, route):
    await send_malformed(virtual_home, route, range(QUICK, QUICK + -(-ALL // len(ROUTES))))


async def send_malformed(virtual_home, route: str, seeds: range) -> None:
    _, found = ROUTES[route]
    model = VIRTUAL if found.task == "encode" else VIRTUAL_RERANKER
    path = found.path.replace("{model}", model)
    gate = asyncio.Semaphore(16)
    statuses: dict[int, int] = {}

    async def post(client: httpx.AsyncClient, seed: int) -> None:
        headers, body = malformed(route, seed)
        if is_valid(route, headers, body):
            return
        async with gate:
            answer = await client.post(path, content=body, headers=headers)
        assert answer.status_code < 500 or answer.status_code == 503, (seed, answer.status_code, answer.text)
        assert answer.status_code >= 400, (seed, answer.text)
        assert answer.headers["x-sie-error-code"]
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1

    with serving(virtual_home) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
            await asyncio.gather(*(post(client, seed) for seed in seeds))
            assert server.runtime_pids() == [], "nothing malformed makes a model load"
            assert (await client.get("/livez")).text == "ok"
    assert sum(statuses.values()) > len(seeds) * 0.8
