"""A line that is too long refuses for a while: every client comes back for its answer by itself."""

import json
import threading
import time

import httpx
import openai
import pytest
import sie_sdk

import shoal
from names import VIRTUAL
from shoal.lab.run import Request, Target
from shoal.testing.flood import Flood, flooding
from shoal.testing.server import serving

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("impatient_sdk")]


def by_shoal(url: str) -> int:
    with shoal.Client(url, timeout_s=60) as client:
        return len(client.encode(VIRTUAL, "a text"))


def by_openai(url: str) -> int:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=20, timeout=60) as client:
        return len(client.embeddings.create(model=VIRTUAL, input="a text").data[0].embedding)


def by_sie_sdk(url: str) -> int:
    with sie_sdk.SIEClient(url, timeout_s=60, api_key="") as client:
        return len(client.encode(VIRTUAL, {"text": "a text"})["dense"])


@pytest.mark.parametrize(
    ("ask", "route"), [(by_shoal, "encode"), (by_openai, "embeddings"), (by_sie_sdk, "encode")]
)
def test_a_client_that_is_refused_for_its_wait_comes_back_by_itself_and_is_answered(virtual_home, ask, route):
    with (
        serving(virtual_home, "--max-wait", "0.5") as server,
        flooding(Flood(server.port, slow_requests(server), 300), rate=600) as over,
    ):
        until(lambda: refusals(server, "embed", 429) > 0)

        def relent() -> None:
            until(lambda: refusals(server, route, 503) > 0)
            over.set()

        relenting = threading.Thread(target=relent)
        relenting.start()
        while not refusals(server, route, 503):  # it may come just when there is room
            assert ask(server.url) > 0
        relenting.join()


def slow_requests(server) -> list[bytes]:
    """By a route of their own, so that nobody else's refusals are counted with theirs."""
    bodies = (json.dumps({"inputs": f"shoal:virtual:slow=0.01 {number}"}).encode() for number in range(100))
    return [Request("/embed", body).encode(Target("127.0.0.1", server.port)) for body in bodies]


def refusals(server, route: str, status: int) -> float:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    counted = f'shoal_requests_total{{route="{route}",status="{status}"}} '
    return sum(float(line.removeprefix(counted)) for line in page.splitlines() if line.startswith(counted))


def until(holds, within_s=30.0) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)
