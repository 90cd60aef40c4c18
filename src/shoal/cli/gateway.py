"""`shoal gateway`: a cluster's front door. It puts requests into the shared queue and relays the answers."""

from typing import Annotated

import typer

from shoal.cli import _options as o
from shoal.cli._objects import ObjectsUrl
from shoal.cli._ready import supervised


def command(app: typer.Typer) -> None:
    @app.command()
    @supervised
    def gateway(
        nats: o.Nats,
        host: o.Host = "127.0.0.1",
        port: o.Port = 8080,
        pool: o.Pool = "default",
        nats_user: o.NatsUser = "",
        nats_creds: o.NatsCreds = None,
        nats_ca: o.NatsCa = None,
        nats_cert: o.NatsCert = None,
        nats_key: o.NatsKey = None,
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
        queue_jobs: o.PoolsJobs = None,
        queue_bytes: o.PoolsBytes = None,
        max_wait: o.MaxWait = 10.0,
        log_format: o.LogFormat = "text",
        access_log: o.AccessLog = False,
        otlp: o.Otlp = "",
        fd: Annotated[int, typer.Option(hidden=True)] = -1,
    ) -> None:
        """Take requests for a cluster's nodes, until Ctrl-C, which finishes what was accepted."""
        from shoal.cli import _cluster
        from shoal.gateway.settings import GatewaySettings
        from shoal.queue import Limits

        process = _cluster.GatewayProcess(
            membership=_cluster.Membership(
                url=nats, pool=pool, log_format=log_format, otlp=otlp,
                login=o.login(nats_user, nats_creds, nats_ca, nats_cert, nats_key),
            ),
            host=host, port=port, fd=fd, objects=objects,
            settings=GatewaySettings(
                max_body_bytes=max_body_bytes, body_timeout_s=body_timeout, head_timeout_s=head_timeout,
                write_timeout_s=write_timeout, max_head_bytes=max_head_bytes, max_in_flight=max_in_flight,
                max_in_flight_bytes=max_in_flight_bytes, max_connections=max_connections,
                max_unread_bytes=max_unread_bytes, max_artifact_bytes=max_artifact_bytes,
                max_artifact_files=max_artifact_files, max_unfinished_bytes=max_unfinished_bytes,
                max_unfinished_bytes_per_key=max_unfinished_bytes_per_key,
                timeout_s=timeout, max_timeout_s=max_timeout, keys=o.read_keys(key_file),
                access_log=access_log,
            ),
            limits=Limits(
                jobs_per_line=queue_jobs or 10_000, bytes_per_line=queue_bytes or 512 * o.MIB, max_wait_s=max_wait
            ),
            sets_limits=bool(queue_jobs or queue_bytes),
        )  # fmt: skip
        _cluster.run_gateway(process)
