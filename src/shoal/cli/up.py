"""`shoal up`: a whole cluster on this host, from one command or one file."""

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli import _options as o
from shoal.cli._objects import ObjectsUrl


def command(app: typer.Typer) -> None:
    @app.command()
    def up(
        file: Annotated[Path | None, typer.Argument(help="A cluster.toml; the options go before it.")] = None,
        nodes: Annotated[int | None, typer.Option(min=0, help="How many nodes; 3 unless the file says.")] = None,
        gateways: Annotated[int | None, typer.Option(min=1, help="How many gateways, all on one port.")] = None,
        host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
        port: Annotated[int | None, typer.Option(min=0, max=65535)] = None,
        queue_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of the queue server.")] = None,
        home: o.Home = None,
        objects: ObjectsUrl = "",
        pin: o.Pin = None,
        memory: Annotated[str, typer.Option(help="What the models of one node may take, e.g. 8GB.")] = "",
    ) -> None:
        """Start a queue server, gateways and nodes here, until Ctrl-C; SIGHUP begins each anew, one by one."""
        import msgspec

        from shoal.cli import _up

        plan = _up.read_plan(file) if file else _up.Plan()
        said = {"nodes": nodes, "gateways": gateways, "host": host, "port": port}
        of_node = {"home": str(home) if home else None, "pin": pin or None, "memory": memory or None}
        plan = msgspec.structs.replace(
            plan,
            queue=msgspec.structs.replace(plan.queue, port=queue_port or plan.queue.port),
            objects=objects or plan.objects,
            node=plan.node | {name: value for name, value in of_node.items() if value is not None},
            **{name: value for name, value in said.items() if value is not None},
        )
        _up.run(plan)
