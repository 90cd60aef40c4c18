"""Other people's routers in front of servers that each hold one node: how each is had and started."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from environments import Needs, NotHere, environment
from shoal.testing.server import free_port

VLLM_ROUTER = Needs(requirements=("vllm-router==0.1.17",))
POLICIES = (
    "random",
    "round_robin",
    "cache_aware",
    "kv_aware",
    "power_of_two",
    "consistent_hash",
    "sticky_least_loaded",
)
"""All that vllm-router offers; it says itself which are for what."""


class Router(msgspec.Struct, frozen=True):
    """`command` makes the arguments from a port, the servers' addresses, and a folder for files."""

    name: str
    command: Callable[[int, Sequence[str], Path], list[str]]


def by_hand(places: Mapping[str, Sequence[int]]) -> Router:
    """nginx with least_conn over the servers that hold the model in the path, by their numbers."""

    def groups(members: Sequence[str]) -> tuple[str, str]:
        upstreams, locations = [], []
        for number, (model, at) in enumerate(places.items()):
            upstreams.append(_upstream(f"model_{number}", "least_conn;", [members[place] for place in at]))
            locations.append(f"location /v1/encode/{model} {{ proxy_pass http://model_{number}; }}")
        return "\n".join(upstreams), "\n".join(locations)

    return _nginx("nginx-by-hand", "least_conn;", groups)


def _nginx(
    name: str, policy: str, groups: Callable[[Sequence[str]], tuple[str, str]] = lambda members: ("", "")
) -> Router:
    """`groups` are upstreams and locations besides those for everything."""

    def command(port: int, members: Sequence[str], folder: Path) -> list[str]:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise NotHere("nginx is not installed; Debian has it as nginx-light")
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        config = own / "nginx.conf"
        upstreams, locations = groups(members)
        upstreams += _upstream("servers", policy, members)
        config.write_text(_NGINX.format(port=port, own=own, upstreams=upstreams, locations=locations))
        return [program, "-c", str(config), "-e", str(own / "error.log")]

    return Router(name, command)


def _upstream(name: str, policy: str, members: Sequence[str]) -> str:
    servers = " ".join(f"server {at};" for at in members)
    return f"upstream {name} {{ zone {name} 64k; {policy} {servers} keepalive 512; }}"


def _vllm(policy: str) -> Router:
    def command(port: int, members: Sequence[str], folder: Path) -> list[str]:
        program = environment("vllm-router", VLLM_ROUTER) / "vllm-router"
        urls = [f"http://{at}" for at in members]
        return [
            str(program), "--host", "127.0.0.1", "--port", str(port), "--policy", policy,
            "--worker-startup-check-interval", "1", "--prometheus-port", str(free_port()),
            "--log-level", "warning", "--request-timeout-secs", "600", "--max-concurrent-requests", "8192",
            "--disable-retries", "--disable-circuit-breaker", "--worker-urls", *urls,
        ]  # fmt: skip

    return Router(f"vllm-router-{policy}", command)


# A worker a core, what they know of the servers in memory that they share, connections kept open, nothing written
# down: what its documentation advises.
_NGINX = """\
daemon off;
worker_processes auto;
pid {own}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {own}/body;
  proxy_temp_path {own}/proxy;
  fastcgi_temp_path {own}/fastcgi;
  uwsgi_temp_path {own}/uwsgi;
  scgi_temp_path {own}/scgi;
  client_body_buffer_size 64k;
  {upstreams}
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_read_timeout 600s;
  proxy_next_upstream off;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    keepalive_requests 1000000;
    {locations}
    location / {{ proxy_pass http://servers; }}
  }}
}}
"""

ROUND_ROBIN = _nginx("nginx-round-robin", "")
LEAST_CONN = _nginx("nginx-least-conn", "least_conn;")
ROUTERS = {router.name: router for router in (ROUND_ROBIN, LEAST_CONN, *(_vllm(policy) for policy in POLICIES))}
