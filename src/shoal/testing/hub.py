"""A stand-in for a model hub, over real HTTP: the routes that the hub's own client speaks, with its headers,
access tokens, large files behind a redirect, ranges, and connections that break or hang when told to.

Point HF_ENDPOINT at `url`.
"""

import contextlib
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_LARGE = (".safetensors", ".onnx", ".bin")


class Repo:
    """One revision of a repository. `token` makes it private, `gated` asks for conditions to be accepted."""

    def __init__(self, files: dict[str, bytes], *, token: str = "", gated: bool = False) -> None:
        self.files, self.token, self.gated = files, token, gated
        names = "".join(f"{name} {_blob_id(data)}\n" for name, data in sorted(files.items()))
        self.commit = hashlib.sha1(names.encode(), usedforsecurity=False).hexdigest()
        self.tags = {"main"}


class HubStandIn:
    """`asked` lists method, path and range of every request. Large files: `break_after` closes the connection
    after so many bytes of a response, once; `hang_after` waits there until `release`, having set `hangs`;
    `forged` replaces what is sent for a file, `endless` are sent without an end, `told` replaces what is said of
    every repository; `bad_tokens` are refused as such, also for what is public.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.forged: dict[str, bytes] = {}
        self.endless: set[str] = set()
        self.told: dict[str, Any] = {}
        self.bad_tokens: set[str] = set()
        self.break_after = 0
        self.hang_after = 0
        self.hangs, self.release = threading.Event(), threading.Event()
        self.url = ""
        self.elsewhere = ""  # the same place under another name: the client stops following there

    def publish(self, name: str, folder: Path, **access: Any) -> Repo:
        """The files of `folder` as a repository."""
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        self.repos[name] = Repo({p.relative_to(folder).as_posix(): p.read_bytes() for p in found}, **access)
        return self.repos[name]

    def fetched(self) -> set[str]:
        """The names of the files whose contents were asked for."""
        asked = [path for method, path, _ in self.asked if method == "GET" and "/resolve/" in path]
        return {path.split("/resolve/")[1].partition("/")[2] for path in asked}


@contextlib.contextmanager
def hub() -> Iterator[HubStandIn]:
    """A stand-in that listens until the block ends."""
    state = HubStandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    state.elsewhere = f"http://localhost:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield state
    finally:
        state.release.set()
        server.shutdown()
        serving.join()
        server.server_close()


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    state: HubStandIn
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.state.asked.append((self.command, path, self.headers.get("Range", "")))
        try:
            self._route(path)
        except _Refused as refused:
            self._send(
                refused.status,
                json.dumps({"error": refused.message}).encode(),
                {"X-Error-Code": refused.code, "X-Error-Message": refused.message},
            )

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _route(self, path: str) -> None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._describe("/".join(parts[2:4]), parts[4:])
        elif parts[0] == "cdn":
            self._large("/".join(parts[1:3]), "/".join(parts[3:]))
        elif len(parts) > 4 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            raise _Refused(404, "", "no such page")

    def _repo(self, name: str, revision: str = "main") -> Repo:
        repo = self.state.repos.get(name)
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given in self.state.bad_tokens:
            raise _Refused(401, "", "Invalid credentials in Authorization header")
        if repo is None or (repo.token and given != repo.token):
            raise _Refused(404 if given else 401, "RepoNotFound", "Repository not found")
        if revision not in repo.tags | {repo.commit}:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo

    def _describe(self, name: str, rest: list[str]) -> None:
        repo = self._repo(name, rest[1] if len(rest) > 1 else "main")
        if rest[:1] == ["tree"]:
            listed: Any = [
                {"type": "file", "path": path, **_listed(data, path)} for path, data in repo.files.items()
            ]
        else:
            siblings = [{"rfilename": path, **_listed(data, path)} for path, data in repo.files.items()]
            listed = {"id": name, "sha": repo.commit, "private": bool(repo.token), "siblings": siblings}
            listed |= self.state.told
        self._send(200, json.dumps(listed).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        """Small files as they are, large ones from elsewhere."""
        repo = self._repo(name, revision)
        if repo.gated:
            raise _Refused(403, "GatedRepo", "Access to this model is restricted")
        if path not in repo.files:
            raise _Refused(404, "EntryNotFound", f"no {path}")
        data = repo.files[path]
        headers = {"X-Repo-Commit": repo.commit, "ETag": f'"{_blob_id(data)}"'}
        if not path.endswith(_LARGE):
            self._send(200, self.state.forged.get(path, data), headers)
            return
        headers |= {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"'}
        self._send(302, b"", headers | {"Location": f"{self.state.elsewhere}/cdn/{name}/{path}"})

    def _large(self, name: str, path: str) -> None:
        if path in self.state.endless:
            return self._send_without_end()
        data = self.state.forged.get(path, self.state.repos[name].files[path])
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        start = int(asked.partition("-")[0]) if asked else 0
        headers = {"Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206 if asked else 200, data[start:], headers, breaks=True)

    def _send_without_end(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(bytes(1024 * 1024))

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, breaks: bool = False) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if breaks and (limit := self.state.break_after or self.state.hang_after):
            self.wfile.write(body[:limit])
            self.wfile.flush()
            if self.state.hang_after:
                self.state.hangs.set()
                self.state.release.wait(120)
            self.state.break_after = self.state.hang_after = 0
            self.close_connection = True
            return
        self.wfile.write(body)


def _listed(data: bytes, path: str) -> dict[str, Any]:
    """As the hub lists a file; `oid` and `blobId` are the same thing on two of its routes."""
    entry: dict[str, Any] = {"size": len(data), "oid": _blob_id(data), "blobId": _blob_id(data)}
    if path.endswith(_LARGE):
        sha256 = hashlib.sha256(data).hexdigest()
        entry["lfs"] = {"oid": sha256, "sha256": sha256, "size": len(data), "pointerSize": 134}
    return entry


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()
