"""Where pushed models and keys are kept: a folder of this machine, or a bucket that several share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shoal.catalog.objects import Objects

ObjectsUrl = Annotated[
    str,
    typer.Option(
        "--objects",
        envvar="SHOAL_OBJECTS",
        help="Where pushed models and keys are kept: a folder, s3://, gs:// or az://; else $SHOAL_HOME/objects.",
    ),
]

SharedObjects = Annotated[
    str,
    typer.Option(
        "--objects",
        envvar="SHOAL_OBJECTS",
        help="The object store of the gateways, from which pushed models are served; without it none is.",
    ),
]


def objects_url(said: str, home: Path | None = None) -> str:
    """What was said, else the folder beside the models of `home`."""
    from shoal.catalog.store import Store

    return said or str(Store(home).home / "objects")


def open_objects(said: str, home: Path | None = None) -> "Objects":
    """Raises InvalidInput where nothing can be kept there."""
    from shoal.catalog.objects import Objects

    return Objects.open(objects_url(said, home))
