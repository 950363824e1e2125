"""A client of a soak: requests of all kinds, one after the other, over the four APIs."""

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidMessage

from callsmith.runtime.jobs.background import JOB_ID
from tests.attack.soak.apis import APIS, PATHS, BrokenAnswer, Unanswered, body_of, read_answer, read_stream
from tests.attack.soak.ledger import TOKEN, Ledger, new_token
from tests.attack.soak.upstream import LIES, SLOW_LIES

PAUSE = 0.25  # seconds between two requests of a client: enough is left of the machine for other work
_APPROVAL = re.compile(r"confirm_[0-9a-f]{24}")
_LATER = (429, 503, 504, 529)
_LOST = (httpx2.HTTPError, OSError, EOFError, ConnectionClosed, InvalidMessage)
_PATIENCE = 240.0  # seconds until something that was acknowledged has come to its end, whatever is hit meanwhile


class Client:
    """A client of one server. What it was promised goes into the ledger."""

    def __init__(self, url: str, ledger: Ledger, until: float, seed: int) -> None:
        self.ledger, self.until, self.random, self.url = ledger, until, random.Random(seed), url
        self.http = httpx2.AsyncClient(base_url=url, timeout=60)

    async def run(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.say, self.say, self.stream, self.stream, self.leave, self.approve, self.approve, self.deny, self.store,
            self.converse, self.background, self.follow, self.use_mcp, self.socket, self.build, self.ship, self.be_lied_to,
            self.be_lied_to, self.look,
        ]  # fmt: skip
        while time.monotonic() < self.until:
            await self.attempt(self.random.choice(kinds))
            await asyncio.sleep(PAUSE)
        await self.http.aclose()

    async def attempt(self, kind: Callable[[], Awaitable[None]]) -> None:
        name, began = kind.__name__, time.monotonic()
        try:
            await kind()
            self.ledger.done[name] += 1
            self.ledger.seconds.append(time.monotonic() - began)
        except (*_LOST, Unanswered) as error:
            self.ledger.retried[f"{name}: {type(error).__name__} {str(error)[:70]}"] += 1
            await asyncio.sleep(0.5)
        except BrokenAnswer as error:
            self.ledger.wrong.append(f"{name}: {error}")
        except Exception as error:
            self.ledger.wrong.append(f"{name}: {type(error).__name__}: {error}")

    # How requests are sent

    async def post(self, path: str, body: Any) -> Any:
        return self._read(path, await self.http.post(path, json=body))

    async def get(self, path: str) -> Any:
        return self._read(path, await self.http.get(path))

    def _read(self, path: str, answer: httpx2.Response) -> Any:
        if answer.status_code in _LATER:
            raise Unanswered(str(answer.status_code))
        if answer.status_code >= 400:
            self.ledger.wrong.append(f"{path}: {answer.status_code} {answer.text[:200]}")
            raise Unanswered(str(answer.status_code))
        return answer.json()

    async def ask(self, api: str, *messages: str, **more: Any) -> tuple[str, Any]:
        """Say something: the text of the answer, and all of it. Messages are the user's and the model's in turn."""
        roles = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(messages)]
        body = await self.post(PATHS[api], {**body_of(api, "m", roles), **more})
        return read_answer(api, body), body

    async def read_stream(self, api: str, body: Any) -> str:
        async with self.http.stream("POST", PATHS[api], json=body) as answer:
            raw = (await answer.aread()).decode()
        if answer.status_code != 200:
            raise Unanswered(str(answer.status_code))
        return read_stream(api, raw)

    # Plain questions

    async def say(self) -> None:
        api, said = self._api(), f"say {new_token()} please"
        text, _ = await self.ask(api, said)
        self.ledger.same(said, text, api)

    async def stream(self) -> None:
        api, said = self._api(), f"say {new_token()} and all these words please " * 4
        text = await self.read_stream(api, body_of(api, "m", [{"role": "user", "content": said}], stream=True))
        self.ledger.same(said, text, f"{api}, streamed")

    async def leave(self) -> None:
        api = self._api()
        body = body_of(api, "m", [{"role": "user", "content": f"{new_token()} " * 50}], stream=True)
        async with self.http.stream("POST", PATHS[api], json=body) as answer:
            async for _ in answer.aiter_bytes():
                if self.random.random() < 0.3:
                    return

    async def socket(self) -> None:
        token = new_token()
        async with connect(f"{self.url.replace('http', 'ws')}/v1/responses") as connection:
            await connection.send(json.dumps({"type": "response.create", "model": "m", "input": f"say {token}"}))
            async for frame in connection:
                event = json.loads(frame)
                if event["type"] in ("response.completed", "response.failed", "error"):
                    break
            else:
                raise Unanswered("the connection was closed")
        if event["type"] != "response.completed":
            raise Unanswered(event["type"])
        self.ledger.own(token, str(frame))

    async def use_mcp(self) -> None:
        text, _ = await self.ask(self._api(), 'do calculate {"expression": "17 * 23"}')
        if "391" not in text:
            raise Unanswered("the MCP server is away")

    async def look(self) -> None:
        """What a person who watches looks at."""
        for path in ("/v1/approvals?limit=100", "/v1/jobs", "/v1/turns", "/v1/telemetry", "/health"):
            await self.get(path)

    # Calls that a person is asked about

    async def approve(self) -> None:
        token, id = await self._asked("pay")
        self.ledger.doubtful[token] = id
        if self.random.random() < 0.2:  # two people at once
            first, _ = await asyncio.gather(self._decide(id, approve=True), self._decide(id, approve=True))
        else:
            first = await self._decide(id, approve=True)
        self.ledger.called(token, first)

    async def deny(self) -> None:
        token, id = await self._asked("pay")
        await self._decide(id, approve=False, reason="no")
        self.ledger.denied.add(token)

    async def _asked(self, tool: str, **more: Any) -> tuple[str, str]:
        token = new_token()
        text, _ = await self.ask(self._api(), f"do {tool} {json.dumps({'reference': token, **more})}")
        if not (ids := _APPROVAL.findall(text)):
            raise Unanswered(f"nobody was asked: {TOKEN.sub('…', text)[:70]}")
        return token, ids[0]

    async def _decide(self, id: str, **decision: Any) -> Any:
        """Decide, and find out what came of it, however often the server is away."""
        until, path = time.monotonic() + _PATIENCE, f"/v1/approvals/{id}"
        while time.monotonic() < until:
            try:
                answer = await self.http.post(path, json=decision)
                if answer.status_code == 409:
                    answer = await self.http.get(path)
                if answer.status_code == 200 and answer.json()["status"] in ("done", "denied"):
                    return answer.json()
                if answer.status_code not in (200, *_LATER):
                    self.ledger.wrong.append(f"deciding: {answer.status_code} {answer.text[:200]}")
                    break
            except (httpx2.HTTPError, OSError):
                pass
            await asyncio.sleep(1)
        raise Unanswered("no decision")

    # Answers that are stored

    async def store(self) -> None:
        token = new_token()
        _, first = await self.ask("responses", f"say {token}")
        said = f"again {token}"
        _, second = await self.ask("responses", said, previous_response_id=first["id"])
        self.ledger.stored[second["id"]] = said
        if self.random.random() < 0.5:
            await self.http.delete(f"/v1/responses/{first['id']}")
        else:
            self.ledger.stored[first["id"]] = f"say {token}"

    async def converse(self) -> None:
        id = (await self.post("/v1/conversations", {}))["id"]
        for number in range(3):
            said = f"turn {number} {new_token()}"
            text, _ = await self.ask("responses", said, conversation=id)
            self.ledger.same(said, text, "a conversation")
            self.ledger.conversations.setdefault(id, []).append(said)

    async def background(self) -> None:
        said = f"say {new_token()}"
        created = await self.post("/v1/responses", {"model": "m", "input": said, "background": True})
        if self.random.random() < 0.3:
            await self.http.post(f"/v1/responses/{created['id']}/cancel")
            return
        self.ledger.background[created["id"]] = said
        await self._ended(f"/v1/responses/{created['id']}", ("queued", "in_progress"))

    async def follow(self) -> None:
        """An answer in the background whose stream is lost again and again."""
        said = f"say {new_token()} and all these words please " * 6
        body: dict[str, Any] = {"model": "m", "input": said, "background": True, "stream": True}
        text, last, id = "", -1, ""
        while True:
            path = PATHS["responses"] if not id else f"/v1/responses/{id}?stream=true&starting_after={last}"
            lost = last + self.random.randint(5, 40)
            async with self.http.stream(*(("GET", path) if id else ("POST", path)), json=None if id else body) as answer:
                if answer.status_code != 200:  # the server was killed: the end is stored
                    break
                async for line in answer.aiter_lines():
                    event = json.loads(line[6:]) if line.startswith("data: {") else {}
                    if event.get("response") and not id:
                        id = event["response"]["id"]
                        self.ledger.background[id] = said
                    last = event.get("sequence_number", last)
                    text += event.get("delta", "") if event.get("type") == "response.output_text.delta" else ""
                    if event.get("type") == "response.completed":
                        return self.ledger.same(said, text, "a stream with gaps")
                    if event.get("type") in ("response.failed", "error"):
                        raise Unanswered(event["type"])
                    if last >= lost:
                        break
        raise Unanswered(str(answer.status_code))

    async def _ended(self, path: str, open_statuses: tuple[str, ...]) -> Any:
        """What has become of something that was acknowledged, however often the server is away."""
        until, status = time.monotonic() + _PATIENCE, "unknown"
        while time.monotonic() < until:
            try:
                answer = await self.http.get(path)
                if answer.status_code == 404:
                    self.ledger.lost.append(path)
                    raise Unanswered("lost")
                if answer.status_code == 200 and (status := answer.json()["status"]) not in open_statuses:
                    return answer.json()
            except (httpx2.HTTPError, OSError):
                pass
            await asyncio.sleep(0.3)
        self.ledger.wrong.append(f"{path} is still {status} after {_PATIENCE:g} s")
        raise Unanswered("no end")

    # Jobs

    async def build(self) -> None:
        """A job that may be repeated, and whose result comes with a later turn."""
        api, token = self._api(), new_token()
        asked = f"do build {json.dumps({'reference': token, 'seconds': round(self.random.uniform(0.2, 3), 1)})}"
        text, body = await self.ask(api, asked)
        if not (ids := JOB_ID.findall(text)):
            raise Unanswered(f"no job: {TOKEN.sub('…', text)[:60]}")
        job = await self._ended(f"/v1/jobs/{ids[0]}", ("running",))
        self.ledger.ends[f"job: {job['status']}"] += 1
        if job["status"] != "done":
            self.ledger.wrong.append(f"{ids[0]}, which may be repeated, is {job['status']}: {job['result']}")
        try:
            if api == "responses":
                later, _ = await self.ask(api, "And?", previous_response_id=body["id"])
            else:
                later, _ = await self.ask(api, asked, text, "And?")
        except (*_LOST, Unanswered):  # it may have come into a turn whose answer got lost, and then it is read as it is stored
            later = str((await self._ended(f"/v1/jobs/{ids[0]}", ("running",)))["result"])
        if "the store" in later:  # it was away just then, and the answer says so
            later = str((await self._ended(f"/v1/jobs/{ids[0]}", ("running",)))["result"])
        if f"built {token}" not in later and job["status"] == "done":
            self.ledger.lost.append(f"the result of {ids[0]}, in a later turn: {later[:200]!r}")

    async def ship(self) -> None:
        """A job with side effects, which is asked about first and never repeated."""
        token, id = await self._asked("ship", seconds=round(self.random.uniform(0.2, 3), 1))
        self.ledger.doubtful[token] = id
        approval = await self._decide(id, approve=True)
        self.ledger.called(token, approval)
        for job in JOB_ID.findall((approval["result"] or {}).get("content") or "")[:1]:
            ended = await self._ended(f"/v1/jobs/{job}", ("running",))
            self.ledger.ends[f"job: {ended['status']}"] += 1
            if ended["status"] not in ("done", "interrupted"):
                self.ledger.wrong.append(f"{job}, which has side effects, is {ended['status']}: {ended['result']}")

    # Upstreams that lie

    async def be_lied_to(self) -> None:
        kind, api, token = self.random.choice(list(LIES)), self._api(), new_token()
        said, stream = f"{token} and some more words", self.random.random() < 0.5
        body = body_of(api, "liar", [{"role": "user", "content": f"lie {kind} {said}"}], stream=stream)
        limit = 2.0 if kind in SLOW_LIES and self.random.random() < 0.7 else 50.0
        try:
            async with asyncio.timeout(limit):
                answer = await self.http.post(PATHS[api], json=body)
        except TimeoutError:
            if limit > 2:
                self.ledger.wrong.append(f"{kind} by {api} was not answered in {limit:g} s")
            return
        try:
            if answer.status_code >= 400:
                raise Unanswered(str(answer.status_code))
            text = read_stream(api, answer.text) if stream else read_answer(api, answer.json())
        except Unanswered:
            if LIES[kind] == "whole":
                raise
            return
        if LIES[kind] == "whole":
            self.ledger.same(said, text, f"{kind} by {api}")
        elif LIES[kind] == "error":
            self.ledger.wrong.append(f"{kind} by {api} passed for an answer: {text[:200]!r}")
        elif set(TOKEN.findall(text)) - {token}:
            self.ledger.wrong.append(f"{kind} by {api}: {token} was answered with {text[:200]!r}")

    def _api(self) -> str:
        return self.random.choice(APIS)
