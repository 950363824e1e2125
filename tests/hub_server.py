"""A model hub on this machine, that answers what the real client of the Hugging Face hub asks of it.

    with FakeHub() as hub:
        hub.add("org/repo", {"model-Q4_K_M.gguf": content})
        # HF_ENDPOINT=hub.url

Large files are elsewhere, as on the real one: whoever asks is sent on to another address, which knows ranges and no tokens.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

LARGE = (".gguf", ".safetensors", ".bin")  # files that are kept apart

Content = bytes | Path


@dataclass
class FakeRepo:
    """A repository: its files by revision, and whose tokens open it. `hidden`: it does not even exist for others."""

    revisions: dict[str, dict[str, Content]] = field(default_factory=dict)
    tokens: frozenset[str] | None = None
    hidden: bool = False

    def commit(self, revision: str) -> str:
        listed = sorted((path, len_of(content)) for path, content in self.revisions[revision].items())
        return hashlib.sha1(repr((revision, listed)).encode()).hexdigest()

    def find(self, revision: str) -> str | None:
        """The name of a revision, which may be given as its commit."""
        return next((name for name in self.revisions if revision in (name, self.commit(name))), None)


def len_of(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def bytes_of(content: Content) -> bytes:
    return content.read_bytes() if isinstance(content, Path) else content


class FakeHub:
    """The hub. `requests` are those that came: method, path, token and range. `break_after` is after how many bytes of a large
    file the connection is cut, `breaks` how often; with `stalls` it stays open instead, and nothing more comes. `down` has every
    request answered with this status, `delay` after so many seconds."""

    def __init__(self) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.requests: list[tuple[str, str, str, str]] = []
        self.break_after, self.breaks, self.down = 0, 0, 0
        self.delay = 0.0
        self.stalls, self.stalled = False, threading.Event()
        self.damage: Mapping[str, bytes] = {}  # what is sent instead of a file, by its sha256
        self._blobs: dict[str, Content] = {}
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.cdn = f"http://localhost:{self._server.server_address[1]}/cdn"

    def add(self, repo: str, files: Mapping[str, Content], revision: str = "main", **kind: Any) -> FakeRepo:
        added = self.repos.setdefault(repo, FakeRepo(**kind))
        added.revisions[revision] = dict(files)
        return added

    def keep(self, content: Content) -> str:
        """The sha256 of a large file, by which it is found."""
        digest = hashlib.sha256(bytes_of(content)).hexdigest()
        self._blobs[digest] = content
        return digest

    def blob(self, digest: str) -> bytes:
        return self.damage.get(digest) or bytes_of(self._blobs[digest])

    def downloads(self) -> list[str]:
        """The ranges that were asked for of large files."""
        return [asked for method, path, _, asked in self.requests if method == "GET" and path.startswith("/cdn/")]

    def wait_for_file(self, folder: Path, pattern: str, size: int) -> Path:
        """The file of that name, as soon as it is as large."""
        for _ in range(600):
            if found := next((path for path in folder.rglob(pattern) if path.stat().st_size >= size), None):
                return found
            time.sleep(0.05)
        raise TimeoutError(f"there is no {pattern} of {size} bytes")

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.hub.requests.append((self.command, path, token, self.headers.get("Range") or ""))
        time.sleep(self.hub.delay)
        if self.hub.down:
            self._send(self.hub.down, b"{}")
        elif match := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
            self._send_blob(match[1])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._describe(match[1], match[2] or "main", token)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(refs/pr/\d+|[^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3], token)
        else:
            self._refuse(404, "", "not found")

    def _find(self, repo: str, revision: str, token: str) -> tuple[FakeRepo, str] | None:
        found = self.hub.repos.get(repo)
        if found is None or (found.hidden and token not in (found.tokens or ())):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif name := found.find(revision):
            return found, name
        else:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def _describe(self, repo: str, revision: str, token: str) -> None:
        if found := self._find(repo, revision, token):
            listed: list[dict[str, Any]] = []
            for path, content in found[0].revisions[found[1]].items():
                entry = {"rfilename": path, "size": len_of(content), "blobId": hashlib.sha1(path.encode()).hexdigest()}
                lfs = (
                    {"sha256": self.hub.keep(content), "size": len_of(content), "pointerSize": 134}
                    if path.endswith(LARGE)
                    else None
                )
                listed.append(entry | ({"lfs": lfs} if lfs else {}))
            gated = "auto" if found[0].tokens is not None else False
            document = {"_id": "0" * 24, "id": repo, "modelId": repo, "sha": found[0].commit(found[1]), "siblings": listed}
            self._send(
                200, json.dumps({**document, "private": False, "gated": gated, "tags": [], "downloads": 0, "likes": 0}).encode()
            )

    def _resolve(self, repo: str, revision: str, path: str, token: str) -> None:
        found = self._find(repo, revision, token)
        if found is None:
            return
        held, name = found
        if held.tokens is not None and token not in held.tokens:
            self._refuse(403 if token else 401, "GatedRepo", "Access to this model is restricted")
        elif (content := held.revisions[name].get(path)) is None:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": held.commit(name)})
        elif path.endswith(LARGE):
            digest = self.hub.keep(content)
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len_of(content)), "X-Repo-Commit": held.commit(name)}
            self._send(302, b"", {**linked, "Location": f"{self.hub.cdn}/{digest}", "ETag": '"0"'})
        else:
            etag = hashlib.sha1(bytes_of(content)).hexdigest()
            self._send(200, bytes_of(content), {"X-Repo-Commit": held.commit(name), "ETag": f'"{etag}"'})

    def _send_blob(self, digest: str) -> None:
        content = self.hub.blob(digest)
        begin = int(re.sub(r"\D", "", self.headers.get("Range") or "") or 0)
        if begin >= len(content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        cut = self.hub.break_after if self.hub.breaks > 0 else 0
        if cut and self.command == "GET":
            self.hub.breaks -= 1
        self._send(206 if begin else 200, content[begin:], headers, cut=cut)

    def _refuse(self, status: int, code: str, message: str, headers: Mapping[str, str] = {}) -> None:
        self._send(status, json.dumps({"error": message}).encode(), {"X-Error-Code": code, "X-Error-Message": message, **headers})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] = {}, *, cut: int = 0) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self.wfile.write(body[:cut] if cut else body)
        except OSError:
            cut = 1
        if cut:
            self.close_connection = True
        if cut and self.hub.stalls:
            self.wfile.flush()
            self.hub.stalled.set()
            with suppress(OSError):
                self.connection.recv(1)  # until the asker hangs up

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
