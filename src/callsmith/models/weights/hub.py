"""Single files of a model hub, over plain HTTPS. `HF_ENDPOINT` names another hub, `HF_TOKEN` opens gated repositories.

Not covered: models split over several files, branches other than `main`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from callsmith.core.errors import Rejected, Unavailable
from callsmith.models.weights.disk import beside, digest_of, is_gguf, require_room

WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
HUB_SCHEME = "hf"
REFERENCE = re.compile(rf"(?:{HUB_SCHEME}:(?P<repo>{WORD}/{WORD}):|(?P<plain>{WORD}/{WORD})/)(?P<file>(?:{WORD}/)*{WORD}\.gguf)")
CHUNK = 1 << 20
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository: `org/repo` and the path inside it."""

    repo: str
    file: str

    def __str__(self) -> str:
        return f"{self.repo}/{self.file}"

    @property
    def url(self) -> str:
        endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        return f"{endpoint.rstrip('/')}/{self.repo}/resolve/main/{quote(self.file)}"


def parse(spec: str) -> HubFile | None:
    """`org/repo/file.gguf` or `hf:org/repo:file.gguf`; None if it is neither."""
    match = REFERENCE.fullmatch(spec)
    return HubFile(match["repo"] or match["plain"], match["file"]) if match else None


def download(source: HubFile, target: Path, report: Callable[[int, int], None]) -> None:
    """Download the file, resuming an earlier attempt; check size and, where the hub gives it, sha256."""
    partial = beside(target, ".partial")
    begun = partial.stat().st_size if partial.exists() else 0
    redirects = _Redirects()
    try:
        with build_opener(redirects).open(_request(source, begun), timeout=PATIENCE) as answer:
            if answer.status != 206:  # the hub sends the whole
                begun = 0
            length = int(answer.headers.get("Content-Length") or 0)
            if length <= 0:
                raise ValueError("it does not say how long the file is")
            total = begun + length
            require_room(target.parent, length)
            _write(answer, partial, begun, lambda done: report(done, total))
            expected = redirects.sha256 or _sha256_of(answer.headers)
    except HTTPError as error:
        if error.code != 416 or not redirects.sha256:
            raise _explain_refusal(source, error) from error
        total, expected = 0, redirects.sha256  # nothing is left to send: the digest tells whether all of it is there
    except (URLError, TimeoutError, ConnectionError, HTTPException, ValueError) as error:  # the last: lengths, addresses
        raise Unavailable(
            f"cannot fetch {source} from the hub: {getattr(error, 'reason', error)}",
            hint="Check the network, or set HF_ENDPOINT to a mirror. What has arrived is kept.",
            retryable=True,
        ) from error
    _accept(partial, target, total, expected)


def _request(source: HubFile, begun: int) -> Request:
    request = Request(source.url, headers={"User-Agent": "callsmith"})
    if token := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if begun:
        request.add_header("Range", f"bytes={begun}-")
    return request


def _write(answer: IO[bytes], partial: Path, begun: int, report: Callable[[int], None]) -> None:
    with partial.open("ab") as out:
        out.truncate(begun)
        while block := answer.read(CHUNK):
            out.write(block)
            report(out.tell())


def _accept(partial: Path, target: Path, total: int, expected: str) -> None:
    if partial.stat().st_size < total:
        raise Unavailable(f"the download of {target.name} broke off", hint="Run it again: it goes on from there.", retryable=True)
    if not is_gguf(partial) or (expected and digest_of(partial).hexdigest() != expected):
        partial.unlink()
        raise Unavailable(f"what the hub sent for {target.name} is damaged; it was thrown away", retryable=True)
    partial.replace(target)


def _explain_refusal(source: HubFile, error: HTTPError) -> Rejected:
    hints = {
        401: "The repository is private or gated: set HF_TOKEN.",
        403: "The repository is gated: accept its terms on the hub and set HF_TOKEN.",
        404: "Check the spelling of the repository and the file.",
        416: "The partial download does not fit the file any more: fetch with --force.",
    }
    hint = hints.get(error.code, "")
    return Rejected(
        f"the hub refused {source}: {error.code} {error.reason}", status=error.code, hint=hint, retryable=error.code >= 500
    )


def _sha256_of(headers: HTTPMessage) -> str:
    tag = (headers.get("X-Linked-Etag") or "").strip('W/"')
    return tag if re.fullmatch(r"[0-9a-f]{64}", tag) else ""


class _Redirects(HTTPRedirectHandler):
    """Records the sha256 in the hub's redirects, and sends the token to no other host."""

    sha256 = ""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        self.sha256 = self.sha256 or _sha256_of(headers)
        onward: Any = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if onward is not None and token and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            onward.add_unredirected_header("Authorization", token)
        return onward
