"""`shoal node`: a machine of a cluster. It pulls from the shared queue what its models can do."""

from typing import Annotated

import typer

from shoal.cli import _options as o
from shoal.cli._objects import SharedObjects
from shoal.cli._ready import supervised


def command(app: typer.Typer) -> None:
    @app.command()
    @supervised
    def node(
        nats: o.Nats,
        pool: o.Pool = "default",
        pin: o.Pin = None,
        memory: o.Memory = "",
        adapter_memory: o.AdapterMemory = "",
        devices: o.Devices = "",
        latency_ms: o.LatencyMs = 100.0,
        home: o.Home = None,
        objects: SharedObjects = "",
        name: Annotated[str, typer.Option(help="What this node is called; else made up from the host's.")] = "",
        drain_within: o.DrainWithin = 30.0,
        prove_within: o.ProveWithin = 120.0,
        max_items: o.MaxItems = 10_000,
        nats_user: o.NatsUser = "",
        nats_creds: o.NatsCreds = None,
        nats_ca: o.NatsCa = None,
        nats_cert: o.NatsCert = None,
        nats_key: o.NatsKey = None,
        metrics_port: Annotated[
            int, typer.Option(min=-1, max=65535, help="Show this node's /metrics on loopback; -1: not.")
        ] = -1,
        log_format: o.LogFormat = "text",
        otlp: o.Otlp = "",
    ) -> None:
        """Compute for a cluster with the models that are here, until Ctrl-C, which finishes what was begun."""
        from shoal.cli import _cluster
        from shoal.node import devices as here
        from shoal.node.settings import Settings

        bytes_of_models = o.parse_size(memory) if memory else int(here.memory_bytes() * 0.7)
        process = _cluster.NodeProcess(
            membership=_cluster.Membership(
                url=nats, pool=pool, log_format=log_format, otlp=otlp,
                login=o.login(nats_user, nats_creds, nats_ca, nats_cert, nats_key),
            ),
            home=home, objects=objects, max_items=max_items, name=name, drain_s=drain_within,
            metrics_port=metrics_port, is_usual_memory=not memory,
            settings=Settings(
                memory_bytes=bytes_of_models,
                adapter_bytes=o.adapter_bytes(adapter_memory, bytes_of_models),
                pinned=frozenset(pin or ()),
                devices=here.named(devices or here.usual()),
                latency_s=latency_ms / 1e3,
                prove_within_s=prove_within,
            ),
        )  # fmt: skip
        _cluster.run_node(process)
