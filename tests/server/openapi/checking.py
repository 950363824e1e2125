"""An application whose requests and answers are held against its own OpenAPI document."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
from starlette.applications import Starlette

from callsmith.server.routes.openapi import write_document

SUCCESS = range(200, 300)


def closed(schema: Any) -> Any:
    """The schema with no other properties than those it lists: what is written is listed, all of it."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: value if key in ("enum", "const", "example", "default") else closed(value) for key, value in schema.items()}
    if "properties" in schema and schema.get("type") == "object" and "additionalProperties" not in schema:
        inner["additionalProperties"] = False
    return inner


class Checker:
    """Holds requests and answers against the schemas of a document."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self.components = {"open": document["components"], "closed": closed(document["components"])}
        self._patterns = [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in document["paths"]]
        self._validators: dict[str, Any] = {}

    def path(self, path: str) -> str | None:
        """The path of the document that this one is."""
        if path in self.document["paths"]:
            return path
        return next((known for pattern, known in self._patterns if pattern.fullmatch(path)), None)

    def operation(self, method: str, path: str) -> Any:
        known = self.path(path)
        return self.document["paths"].get(known, {}).get(method.lower()) if known else None

    def complaints(self, schema: Any, value: Any, *, is_closed: bool) -> Iterator[str]:
        """What is wrong with a value."""
        key = json.dumps([schema, is_closed], sort_keys=True)
        if key not in self._validators:
            kind = "closed" if is_closed else "open"
            whole = {**(closed(schema) if is_closed else schema), "components": self.components[kind]}
            self._validators[key] = jsonschema_rs.Draft202012Validator(whole)
        for error in self._validators[key].iter_errors(value):
            yield f"{'/'.join(map(str, error.instance_path))}: {error.message[:600]}"

    def check_request(self, method: str, path: str, body: Any) -> list[str]:
        operation = self.operation(method, path)
        if operation is None or "requestBody" not in operation:
            return [] if operation is not None else [f"{method} {path} is not in the document"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        return [f"request of {method} {path}: {complaint}" for complaint in self.complaints(schema, body, is_closed=False)]

    def check_answer(self, method: str, path: str, status: int, media: str, body: bytes) -> list[str]:
        operation = self.operation(method, path)
        if operation is None:
            return []
        answers = operation["responses"]
        kind = media.partition(";")[0]
        content = answers["200" if status in SUCCESS else "default"].get("content", {})
        if status in SUCCESS and kind not in content:
            return [f"{method} {path}: {kind} is none of {list(content)}"]
        schema = content.get(kind, {}).get("schema")
        if schema is None or kind.startswith("text/p") or kind == "text/html":
            return []
        where = f"answer {status} of {method} {path}"
        return [
            f"{where}: {complaint}: {str(value)[:300]}"
            for value in frames(kind, body)
            for complaint in self.complaints(schema, value, is_closed=True)
        ]


def frames(kind: str, body: bytes) -> Iterator[Any]:
    """The values in a body: one, or those of a stream."""
    if kind == "text/event-stream":
        for line in body.decode().splitlines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))
    elif kind == "application/x-ndjson":
        yield from (json.loads(line) for line in body.decode().splitlines() if line)
    else:
        yield json.loads(body)


@cache
def checker_of(app: Starlette) -> Checker:
    return Checker(write_document(app.routes, has_keys=False))


class Checked:
    """An ASGI application that notes in `complaints` what of its requests and answers does not fit the document."""

    def __init__(self, app: Any, router: Starlette | None = None) -> None:
        self.app = app
        self.complaints: list[str] = []
        self.seen: set[str] = set()
        self._checker = checker_of(router or app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_body, answered, head = bytearray(), bytearray(), dict[str, Any]()

        async def receiving() -> Any:
            message = await receive()
            request_body.extend(message.get("body", b""))
            return message

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                head.update(message)
            answered.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, receiving, sending)
        if head:
            self._check(scope["method"], scope["path"], head, bytes(request_body), bytes(answered))

    def _check(self, method: str, path: str, head: Any, request_body: bytes, answered: bytes) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in head["headers"]}
        status, template = head["status"], self._checker.path(path)
        if template is None or self._checker.operation(method, path) is None:
            return
        self.seen.add(f"{method} {template}")
        if request_body and status in SUCCESS:
            self.complaints += self._checker.check_request(method, path, json.loads(request_body))
        if answered:
            self.complaints += self._checker.check_answer(method, path, status, headers.get("content-type", ""), answered)
