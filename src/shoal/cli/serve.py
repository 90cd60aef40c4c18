"""`shoal serve`: the whole road in one process, gateway and node joined by the in-process queue."""

import typer

from shoal.cli import _options as o
from shoal.cli._objects import ObjectsUrl


def command(app: typer.Typer) -> None:
    @app.command()
    def serve(
        host: o.Host = "127.0.0.1",
        port: o.Port = 8080,
        pin: o.Pin = None,
        memory: o.Memory = "",
        adapter_memory: o.AdapterMemory = "",
        devices: o.Devices = "",
        home: o.Home = None,
        key_file: o.KeyFile = None,
        objects: ObjectsUrl = "",
        timeout: o.Timeout = 120.0,
        max_timeout: o.MaxTimeout = 600.0,
        max_body_bytes: o.MaxBodyBytes = 32 * o.MIB,
        body_timeout: o.BodyTimeout = 30.0,
        head_timeout: o.HeadTimeout = 30.0,
        write_timeout: o.WriteTimeout = 30.0,
        max_head_bytes: o.MaxHeadBytes = 64 * 1024,
        max_in_flight: o.MaxInFlight = 4096,
        max_in_flight_bytes: o.MaxInFlightBytes = 512 * o.MIB,
        max_unread_bytes: o.MaxUnreadBytes = 512 * o.MIB,
        max_connections: o.MaxConnections = 8192,
        max_artifact_bytes: o.MaxArtifactBytes = 10_000_000_000,
        max_artifact_files: o.MaxArtifactFiles = 1000,
        max_unfinished_bytes: o.MaxUnfinishedBytes = 20_000_000_000,
        max_unfinished_bytes_per_key: o.MaxUnfinishedBytesPerKey = 10_000_000_000,
        prove_within: o.ProveWithin = 120.0,
        max_items: o.MaxItems = 10_000,
        queue_jobs: o.QueueJobs = 10_000,
        queue_bytes: o.QueueBytes = 512 * o.MIB,
        max_wait: o.MaxWait = 10.0,
        log_format: o.LogFormat = "text",
        access_log: o.AccessLog = False,
        otlp: o.Otlp = "",
    ) -> None:
        """Serve the models that are here, until Ctrl-C, which finishes what was accepted."""
        from shoal.cli import _road
        from shoal.gateway.settings import GatewaySettings
        from shoal.node import devices as here
        from shoal.node.settings import Settings
        from shoal.queue import Limits

        bytes_of_models = o.parse_size(memory) if memory else int(here.memory_bytes() * 0.7)
        road = _road.Road(
            host=host, port=port, home=home, objects=objects, max_items=max_items,
            log_format=log_format, otlp=otlp,
            gateway=GatewaySettings(
                max_body_bytes=max_body_bytes, body_timeout_s=body_timeout, head_timeout_s=head_timeout,
                write_timeout_s=write_timeout, max_head_bytes=max_head_bytes, max_in_flight=max_in_flight,
                max_in_flight_bytes=max_in_flight_bytes, max_connections=max_connections,
                max_unread_bytes=max_unread_bytes, max_artifact_bytes=max_artifact_bytes,
                max_artifact_files=max_artifact_files, max_unfinished_bytes=max_unfinished_bytes,
                max_unfinished_bytes_per_key=max_unfinished_bytes_per_key,
                timeout_s=timeout, max_timeout_s=max_timeout, keys=o.read_keys(key_file),
                access_log=access_log,
            ),
            node=Settings(
                memory_bytes=bytes_of_models,
                adapter_bytes=o.adapter_bytes(adapter_memory, bytes_of_models),
                pinned=frozenset(pin or ()),
                devices=here.named(devices or here.usual()),
                prove_within_s=prove_within,
            ),
            queue=Limits(jobs_per_line=queue_jobs, bytes_per_line=queue_bytes, max_wait_s=max_wait),
        )  # fmt: skip
        _road.run(road)
