"""What tests of pushes share: adapters and models small enough to push in a moment, and clusters for them."""

import contextlib
import time
from pathlib import Path

import numpy as np

import shoal
from names import VIRTUAL
from shoal.catalog.store import Store
from shoal.protocol.errors import ModelNotFound
from shoal.testing.adapters import write_adapter
from shoal.testing.checkpoints import tiny_encoder
from shoal.testing.cluster import Cluster, Part, cluster

WITHIN_S = 60.0
TEXT = "small fish swim in a shoal"
PROVING, FETCHED = "proving a push", "files were fetched"


def an_adapter(folder: Path, seed: int = 0) -> Path:
    """For whatever has the linears of a tiny encoder; a stand-in takes any."""
    base = folder.parent / "base-of-adapters"
    if not base.is_dir():
        tiny_encoder(base)
    return write_adapter(folder, base, seed=seed)


def a_model(folder: Path, seed: int = 0) -> Path:
    tiny_encoder(folder, seed=seed)
    return folder


def a_home(folder: Path) -> Path:
    """A store with a stand-in, on which adapters can be put."""
    Store(folder).add(VIRTUAL)
    return folder


@contextlib.contextmanager
def pushable(place: Path, *, nodes: int = 3, gateways: int = 1, node_options=()):
    """A cluster with one object store, each of its nodes with a disk of its own."""
    objects = ["--objects", str(place / "objects")]
    homes = [a_home(place / f"home-{number}") for number in range(1, nodes + 1)]
    with cluster(
        homes, gateways=gateways, node_options=[*objects, *node_options], gateway_options=objects
    ) as running:
        yield running


def client_of(running: Cluster, gateway: int = 0) -> shoal.Client:
    return shoal.Client(running.gateways[gateway].url, timeout_s=WITHIN_S)


def said(part: Part, words: str) -> int:
    """How many lines of its log have these words."""
    return part.log.read_text().count(words)


def who_said(running: Cluster, words: str, within_s: float = WITHIN_S) -> Part:
    """The first node whose log has these words."""
    until = time.monotonic() + within_s
    while True:
        for node in running.nodes:
            if node.process is not None and said(node, words):
                return node
        assert time.monotonic() < until, running.logs()
        time.sleep(0.005)


def soon(condition, what: str, within_s: float = WITHIN_S) -> float:
    """Seconds until it held."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, what
        time.sleep(0.02)
    return time.monotonic() - began


def vector(client: shoal.Client, model: str, text: str = TEXT) -> np.ndarray:
    return client.encode(model, [text])[0]


def is_gone(client: shoal.Client, name: str) -> bool:
    try:
        client.encode(name, [TEXT])
    except ModelNotFound:
        return True
    return False
