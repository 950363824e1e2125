"""The loopback redirect of an OAuth login: a small HTTP listener on this machine, open for as long as the login takes."""

import asyncio
import socket
from secrets import compare_digest
from urllib.parse import parse_qs, urlsplit

from callsmith.core.types.escaped_text import in_html

HOST = "127.0.0.1"
PATH = "/callback"
_PAGE = "<!doctype html><meta charset=utf-8><title>callsmith</title><p>{}</p>"


def free_port() -> int:
    with socket.create_server((HOST, 0)) as chosen:
        return chosen.getsockname()[1]


class Loopback:
    """Listens on a port for the one redirect that carries the authorization code, recognised by its state."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] | None = None

    async def open(self, state: str) -> None:
        self.close()
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._handle_visit, HOST, self._port)

    async def answer(self, seconds: float) -> dict[str, str]:
        """The parameters of the redirect."""
        assert self._answer is not None, "open() comes first"
        async with asyncio.timeout(seconds):
            return await self._answer

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _handle_visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
            target = urlsplit(line.decode("latin-1").partition(" ")[2].partition(" ")[0])
            query = {key: values[0] for key, values in parse_qs(target.query).items()}
            known = compare_digest(query.get("state", "").encode(), self._state.encode())
            ours = known and target.path == PATH and ("code" in query or "error" in query)
            if ours and self._answer is not None and not self._answer.done():
                self._answer.set_result(query)
            writer.write(_page(query) if ours else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # not our browser
        finally:
            writer.close()


def _page(query: dict[str, str]) -> bytes:
    said = f"The login failed: {query.get('error_description') or query['error']}" if "error" in query else "You are logged in."
    body = _PAGE.format(in_html(f"{said} You can close this page.")).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n"
    return head.format(len(body)).encode() + body
