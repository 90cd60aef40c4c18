"""The object stores that contracts are held to: a folder, and a server that speaks S3."""

import secrets

import pytest

from shoal.catalog.objects import Objects
from shoal.catalog.registry import Registry
from shoal.testing.s3 import s3_server


@pytest.fixture(scope="module")
def s3():
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(params=["folder", "s3"])
def objects_url(request, tmp_path):
    """An empty one of each kind."""
    if request.param == "folder":
        return str(tmp_path / "objects")
    return request.getfixturevalue("s3").make_bucket(f"bucket-{secrets.token_hex(4)}") + "/some/where"


@pytest.fixture
def objects(objects_url) -> Objects:
    return Objects.open(objects_url)


@pytest.fixture
def registry(objects) -> Registry:
    return Registry(objects)
