"""What the paths of push mean, which scope each needs, and what its bodies may be. Pure."""

import hashlib
import tracemalloc

import msgspec
import pytest

from pushed_states import alias, named, push
from shoal.catalog.proof import MOST_ROWS
from shoal.gateway import push_bodies, push_routes
from shoal.gateway.access import ANY_KEY, ANY_PUSH
from shoal.gateway.publishing import adapters_of
from shoal.protocol.errors import InvalidInput, MethodNotAllowed, UnsupportedMediaType

NAMES = "/v1/configs/models"
SHA = "ab" * 32


@pytest.mark.parametrize(
    ("method", "path", "route", "needed"),
    [
        ("GET", "/v1/uploads", "upload_limits", ANY_KEY),
        ("POST", "/v1/uploads", "uploads", ANY_PUSH),
        ("GET", f"/v1/uploads/{SHA}", "upload_reached", ANY_PUSH),
        ("HEAD", f"/v1/uploads/{SHA}", "upload_reached", ANY_PUSH),
        ("PUT", f"/v1/uploads/{SHA}", "upload", ANY_PUSH),
        ("GET", NAMES, "pushed", ANY_KEY),
        ("POST", NAMES, "push", ANY_PUSH),
        ("GET", f"{NAMES}/team/contracts", "pushed_name", ANY_KEY),
        ("GET", f"{NAMES}/contracts", "pushed_name", ANY_KEY),
        ("DELETE", f"{NAMES}/team/contracts", "pushed_remove", "push:team/contracts"),
        ("DELETE", f"{NAMES}/team__contracts@3", "pushed_remove", "push:team/contracts"),
        ("GET", f"{NAMES}/team/contracts/history", "pushed_history", ANY_KEY),
        ("POST", f"{NAMES}/team/contracts/rollback", "rollback", "push:team/contracts"),
        ("PUT", f"{NAMES}/team__contracts/aliases/prod", "alias", "push:team/contracts"),
        ("DELETE", f"{NAMES}/team/contracts/aliases/prod", "unalias", "push:team/contracts"),
        ("GET", f"{NAMES}/team__history", "pushed_name", ANY_KEY),
        ("DELETE", f"{NAMES}/team__rollback", "pushed_remove", "push:team/rollback"),
    ],
)
def test_a_path_is_one_route_with_the_scope_that_it_needs(method, path, route, needed):
    found = push_routes.find(method, path)
    assert (found.route.name, found.needed) == (route, needed)


@pytest.mark.parametrize("path", ["/v1/upload", "/v1/uploadsx", "/v1/uploads/", "/v1/configs", f"{NAMES}/", "/"])
def test_other_paths_are_left_to_others(path):
    assert push_routes.find("GET", path) is None


def test_a_wrong_method_is_refused_naming_the_right_ones():
    for method, path in (
        ("POST", f"/v1/uploads/{SHA}"),
        ("PATCH", f"{NAMES}/a"),
        ("PUT", NAMES),
        ("GET", f"{NAMES}/a/rollback"),
    ):
        with pytest.raises(MethodNotAllowed) as refused:
            push_routes.find(method, path)
        assert refused.value.detail["allow"]


def test_every_route_that_changes_something_needs_a_scope():
    for methods in push_routes._ROUTES.values():
        for method, route in methods.items():
            assert method in ("GET", "HEAD") or route.needed == ANY_PUSH, route.name


@pytest.mark.parametrize("name", ["..", "a/b/c", "a__b/c", "a b", "-a", "a/", "a" * 200, "a:int8", "é"])
def test_a_name_that_no_model_can_have_is_refused_before_anything_is_asked_of_its_scope(name):
    with pytest.raises(InvalidInput):
        push_routes.find("DELETE", f"{NAMES}/{name}").needed  # noqa: B018


def form(*parts: tuple[str, str, bytes], boundary: str = "xyz", end: bytes = b"--") -> tuple[bytes, str]:
    """Each is a field, its file name or "", and its content."""
    body = b""
    for name, filename, content in parts:
        said = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
        body += f"--{boundary}\r\ncontent-disposition: {said}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{boundary}".encode() + end + b"\r\n", f"multipart/form-data; boundary={boundary}"


def test_a_form_brings_a_name_files_in_their_places_and_reference_rows():
    weights = bytes(range(256)) * 40 + b"\r\n--xy\r\n--\r\n"
    rows = b'{"text": "a", "values": [1.0, 0.5]}\n\n{"text": "b", "values": [2]}\n'
    body, kind = form(
        ("name", "", b"team/contracts"),
        ("note", "", "für März".encode()),
        ("file", "model.safetensors", weights),
        ("file", "1_Pooling/config.json", b"{}"),
        ("reference", "reference.jsonl", rows),
    )
    found = push_bodies.read_form(body, kind)
    assert (found.push.name, found.push.note, len(found.push.reference)) == ("team/contracts", "für März", 2)
    assert found.contents == {"model.safetensors": weights, "1_Pooling/config.json": b"{}"}
    assert {file.path: file.sha256 for file in found.push.files} == {
        path: hashlib.sha256(data).hexdigest() for path, data in found.contents.items()
    }


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (*form(("file", "a.json", b"{}")), "no field `name`"),
        (*form(("name", "", b"a"), ("nmae", "", b"b")), "'nmae'"),
        (*form(("name", "", b"a"), ("name", "", b"b")), "twice"),
        (*form(("name", "", b"a"), ("file", "x", b"b"), ("file", "x", b"c")), "twice"),
        (*form(("name", "", b"\xff\xfe")), "UTF-8"),
        (*form(("name", "", b"a"), ("reference", "", b"{")), "malformed|truncated|JSON"),
        (*form(("name", "", b"a"), end=b""), "cannot be read"),
        (b"", "multipart/form-data; boundary=xyz", "cannot be read"),
        (b"name=a", "multipart/form-data; boundary=xyz", "cannot be read"),
        (form(("name", "", b"a"))[0], "multipart/form-data", "without a boundary"),
        (*form(*[("file", f"{n}.json", b"") for n in range(1200)]), "cannot be read"),
    ],
)
def test_a_form_that_is_none_is_refused_with_the_reason(body, kind, words):
    with pytest.raises(InvalidInput, match=words):
        push_bodies.read_form(body, kind)


@pytest.mark.parametrize("module", [msgspec.json, msgspec.msgpack])
def test_a_push_is_read_as_json_or_msgpack(module):
    kind = f"application/{module.__name__.rpartition('.')[2]}"
    said = {
        "name": "a",
        "files": [{"path": "m", "sha256": SHA, "size_bytes": 3}],
        "reference": [{"text": "x", "values": [1]}],
    }
    found = push_bodies.read(push_bodies.Push, module.encode(said), kind)
    assert (found.name, found.files[0].size_bytes, found.reference[0].values) == ("a", 3, [1.0])
    wrong = [
        {"files": []}, {"name": 3}, {"name": "a", "fiels": []}, {"name": "a", "files": [{"path": "m"}]},
        {"name": "a", "files": [{"path": "m", "sha256": "AB" * 32, "size_bytes": 3}]},
        {"name": "a", "files": [{"path": "m", "sha256": SHA, "size_bytes": -1}]},
        {"name": "a", "reference": [{"text": "x", "values": [1]}] * (MOST_ROWS + 1)},
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(InvalidInput):
            push_bodies.read(push_bodies.Push, module.encode(bad), kind)
    with pytest.raises(UnsupportedMediaType):
        push_bodies.read(push_bodies.Push, b"name: a", "application/yaml")


@pytest.mark.parametrize(
    "more",
    [
        b"\xa5facts\x81\xa1x\xdd\x00\x4c\x4b\x40" + b"\x90" * 5_000_000,
        b"\xa9reference\xdd\x00\x0f\x42\x40" + b"\x82\xa4text\xa0\xa6values\x90" * 1_000_000,
        b"\xa9reference\x91\x82\xa4text\xa0\xa6values\xdd\x00\x4c\x4b\x40" + b"\x00" * 5_000_000,
    ],
)
def test_a_push_that_would_grow_a_hundredfold_is_refused_before_it_does(more):
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=r"facts|reference|values"):
            push_bodies.read(push_bodies.Push, b"\x82\xa4name\xa1a" + more, "application/msgpack")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def test_a_base_is_used_by_every_version_of_an_adapter_that_somebody_may_ask_for():
    states = [
        named("enc", push("enc", 1), push("enc", 2)),
        named("one", push("one", 3, base="enc@1"), alias("prod"), push("one", 4, base="enc@2")),
        named("two", push("two", 5, base="enc2@1"), push("two", 6, base="enc@2")),
    ]
    assert adapters_of("enc", 1, states) == ["one@1"]
    assert adapters_of("enc", 2, states) == ["one", "two"]
    assert adapters_of("enc", 0, states) == ["one", "one@1", "two"]
    assert adapters_of("one", 0, states) == adapters_of("en", 0, states) == []


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1e3", "²", "9" * 20, " 1"])
def test_an_offset_that_is_no_number_is_refused(text):
    with pytest.raises(InvalidInput, match="offset"):
        push_bodies.number({"offset": text}, "offset")
    assert push_bodies.number({"offset": "12"}, "offset") == 12
