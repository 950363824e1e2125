"""CodeModel: a sandbox in the place of a model. What it "says" is what the code calls next, and at last what has come of it.

So the calls of code are run, judged, journaled and resumed by the same run as the calls of a model. The code does nothing but
compute between its calls, with a clock that stands still: run again over the results of a history, it comes to the same place.
"""

import asyncio
import json
import re
import tokenize
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import Any, NoReturn, Self

from callsmith.core.errors import MissingExtra
from callsmith.core.events import CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.failures import is_failure
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.types.field_checks import check_fields
from callsmith.core.values import Call, Json, Message, Request, Tool
from callsmith.formats.prompt.tool_prompt import parameter_names

try:
    from pydantic_monty import (
        AsyncFunctionSnapshot,
        AsyncFutureSnapshot,
        AsyncMonty,
        AsyncMontySession,
        AsyncNameLookupSnapshot,
        AsyncSnapshot,
        ExternalSettledResult,
        MontyComplete,
        MontyCrashedError,
        MontyError,
        MontyRuntimeError,
        MontySyntaxError,
    )
except ImportError as missing:
    raise MissingExtra("code", "running code that calls tools") from missing

MOST_CHARACTERS = 100_000  # of the arguments of a call, and of a result that the code reads
MOST_CHARACTERS_IN_ALL = 1_000_000  # of the arguments of all calls, and of all results
_AWAIT = re.compile(r"\bawait\b")
_CODE_IN_TEXT = re.compile("[rR]?[fF]")  # what a text with code in it begins with
_GRACE = 1.0  # seconds after which a sandbox that does not stop by itself is killed
_MOST_NAMES = 20  # of calls or functions that a message lists
LONGEST_MESSAGE = 2_000  # characters of an error
_NOTHING = "The code printed nothing and its last line has no value. print() what you want to see."


@check_fields
@dataclass(frozen=True, slots=True)
class CodeLimits:
    """How far code may go: its `characters`, the `calls` it makes, the `seconds` it computes, its `memory` in bytes, the depth of
    its `recursion`, and how many characters there are of what it prints and of its value (`output`)."""

    characters: int = 20_000
    calls: int = 100
    seconds: float = 5.0
    memory: int = 64 * 1024 * 1024
    recursion: int = 200
    output: int = 20_000


class CodeFailed(Exception):
    """Why the code has come to no end, in words for whoever has written it."""


class CodeModel:
    """The sandbox of one piece of code, for as long as the block lasts. Its history begins with `begin_history`.

    `functions` are the tools by their names in the code, `prefix` is what the ids of its calls begin with. At the end `failure`
    is what went wrong; empty if nothing did.
    """

    def __init__(self, code: str, functions: Mapping[str, Tool], limits: CodeLimits, prefix: str) -> None:
        self._code = code
        self._functions = functions
        self._limits = limits
        self._prefix = prefix
        self._is_async = _has_await(code[: limits.characters])
        self._stack = AsyncExitStack()
        self._snapshot: AsyncSnapshot | None = None
        self._calls: dict[int, Call] = {}  # by their numbers in the sandbox, those that have no result yet
        self._made = 0
        self._argument_room = MOST_CHARACTERS_IN_ALL
        self._done: Counter[str] = Counter()  # those that went well
        self._printed: list[str] = []
        self._print_room = limits.output
        self.failure = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """The next calls, or what has come of the code."""
        results = {message.call_id: message for message in request.messages if message.role == "tool"}
        text, calls = "", list[Call]()
        try:
            if self._snapshot is None:
                self._snapshot = await self._begin(request.messages)
            calls = await self._advance(self._snapshot, results)
            text = "" if calls else self._describe_end(self._snapshot)
        except (MontyError, CodeFailed, ValueError, TypeError, OverflowError, RecursionError) as error:
            self.failure = text = self._describe_error(error)
        for index, call in enumerate(calls):
            yield CallStarted(index, call.name, call.id)
            yield CallReady(index, call)
        if text:
            yield Text(text)
        yield Stopped("calls" if calls else "stop")

    async def _begin(self, messages: Sequence[Message]) -> AsyncSnapshot:
        if len(self._code) > self._limits.characters:
            raise CodeFailed(f"the code has {len(self._code):,} characters, and at most {self._limits.characters:,} are run")
        starting = asyncio.create_task(self._start(datetime.fromisoformat(messages[0].content)))
        try:
            session = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])  # a sandbox that is half started would not be ended with the block
            raise
        return await session.feed_start(self._code, print_callback=self._print)

    async def _start(self, now: datetime) -> AsyncMontySession:
        limits = self._limits
        pool = AsyncMonty(max_processes=1, request_timeout=limits.seconds + 2 * _GRACE, feed_duration_limit_grace=_GRACE)
        await self._stack.enter_async_context(pool)
        return await self._stack.enter_async_context(
            pool.checkout(
                limits={
                    "max_feed_duration_secs": limits.seconds,
                    "max_memory": limits.memory,
                    "max_recursion_depth": limits.recursion,
                    "max_suspensions": 20 * limits.calls + 1000,
                },
                os_policy={"datetime": now, "sleep": "zero", "random_start": {"seed": self._prefix}},
            )
        )

    def _print(self, stream: str, text: str) -> None:
        if self._print_room > 0:
            self._printed.append(text[: self._print_room])
        self._print_room -= len(text)

    async def _advance(self, snapshot: AsyncSnapshot, results: Mapping[str, Message]) -> list[Call]:
        """Go on up to calls that have no result; none if the code has ended."""
        while not isinstance(snapshot, MontyComplete):
            match snapshot:
                case AsyncFunctionSnapshot(is_os_function=True):
                    snapshot = await snapshot.resume_not_handled()
                case AsyncFunctionSnapshot():
                    if snapshot.call_id not in self._calls:
                        try:
                            self._calls[snapshot.call_id] = self._read_call(snapshot)
                        except (NameError, TypeError) as error:
                            snapshot = await snapshot.resume({"exception": error})
                            continue
                    if self._is_async:
                        snapshot = await snapshot.resume({"future": ...})
                        continue
                    if open_calls := self._list_open([snapshot.call_id], results):
                        self._snapshot = snapshot
                        return open_calls
                    snapshot = await snapshot.resume(self._take_result(snapshot.call_id, results))
                case AsyncNameLookupSnapshot(variable_name=name):
                    snapshot = await (snapshot.resume(value=_placeholder(name)) if name in self._functions else snapshot.resume())
                case AsyncFutureSnapshot(pending_call_ids=ids):
                    if open_calls := self._list_open(ids, results):
                        self._snapshot = snapshot
                        return open_calls
                    snapshot = await snapshot.resume({id: self._take_result(id, results) for id in ids})
        self._snapshot = snapshot
        return []

    def _list_open(self, ids: Sequence[int], results: Mapping[str, Message]) -> list[Call]:
        return [self._calls[id] for id in ids if self._calls[id].id not in results]

    def _read_call(self, snapshot: AsyncFunctionSnapshot) -> Call:
        """What the code calls. A NameError or a TypeError, for the code, if that is no tool or the arguments are none."""
        name = str(snapshot.function_name)
        tool = self._functions.get(name)
        if tool is None:
            listed = ", ".join([*self._functions][:_MOST_NAMES])
            raise NameError(f"name {name!r} is not defined; the functions are: {listed}")
        if self._made >= self._limits.calls:
            raise CodeFailed(f"the code makes more than {self._limits.calls} calls")
        names = parameter_names(tool)
        if len(snapshot.args) > len(names):
            raise TypeError(f"{name}() takes {len(names)} positional arguments but {len(snapshot.args)} were given")
        given = dict(zip(names, snapshot.args, strict=False))
        if twice := given.keys() & snapshot.kwargs.keys():
            raise TypeError(f"{name}() got multiple values for argument {min(twice)!r}")
        try:
            text = json.dumps(given | snapshot.kwargs, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{name}() takes only what can be written as JSON: {error}") from None
        if len(text) > MOST_CHARACTERS:
            raise TypeError(f"{name}() takes at most {MOST_CHARACTERS:,} characters, and these are {len(text):,}")
        if len(text) > self._argument_room:
            raise CodeFailed(f"the code passes more than {MOST_CHARACTERS_IN_ALL:,} characters to its calls")
        self._argument_room -= len(text)
        self._made += 1
        return Call(tool.name, json.loads(text), f"{self._prefix}_{self._made}")

    def _take_result(self, id: int, results: Mapping[str, Message]) -> ExternalSettledResult:
        """What a call has come to, for the code: a value, or an exception."""
        call = self._calls.pop(id)
        text = results[call.id].content
        if is_failure(text):
            return {"exc_type": "RuntimeError", "message": text}
        self._done[call.name] += 1
        return {"return_value": _read_value(text)}

    def _describe_end(self, snapshot: AsyncSnapshot) -> str:
        assert isinstance(snapshot, MontyComplete)
        if self._calls:  # made in code that awaits, and never awaited
            names = ", ".join(dict.fromkeys(call.name for call in self._calls.values()))
            raise CodeFailed(f"calls without `await` have not run: {names}. Write `await` before each call, or nowhere")
        value = snapshot.output
        shown = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        printed = self._list_printed().rstrip("\n")
        return "\n".join(filter(None, (printed, cut_text(shown, self._limits.output)))) or _NOTHING

    def _list_printed(self) -> str:
        missing = f"\n… ({-self._print_room:,} more characters were printed)" if self._print_room < 0 else ""
        return "".join(self._printed) + missing

    def _describe_error(self, error: Exception) -> str:
        """What went wrong and where; what was printed and called until then, which is not undone."""
        if isinstance(error, MontyRuntimeError | MontySyntaxError):
            frames = error.traceback()
            where = f"line {frames[-1].line}: " if frames else ""
            source = (frames[-1].source_line or "").strip() if frames else ""
            lines = [f"{where}{cut_text(error.display('type-msg'), LONGEST_MESSAGE)}", f"    {source[:200]}" if source else ""]
        elif isinstance(error, MontyCrashedError):
            lines = ["the code was stopped: it took too much time or memory"]
        else:
            lines = [cut_text(str(error), LONGEST_MESSAGE)]
        if printed := self._list_printed().strip():
            lines.append(f"Printed until then:\n{printed}")
        if times := [f"{name} ({number} times)" if number > 1 else name for name, number in self._done.items()]:
            lines.append(f"Calls that were made until then, and are not undone: {', '.join(times[:_MOST_NAMES])}")
        return "\n".join(filter(None, lines))


def begin_history(code: str) -> tuple[Message, ...]:
    """What a run of code begins with: the time it is, for the code, and the code."""
    return Message.system(datetime.now(UTC).isoformat()), Message.user(code)


def _has_await(code: str) -> bool:
    """Whether there is an `await` in the code; in a text or a comment it is a word like any other."""
    try:
        for token in tokenize.generate_tokens(StringIO(code).readline):
            may_have_code = token.type == tokenize.NAME or (
                token.type == tokenize.STRING and _CODE_IN_TEXT.match(token.string)  # a token of its own up to Python 3.11
            )
            if may_have_code and _AWAIT.search(token.string):
                return True
    except (tokenize.TokenError, SyntaxError):  # the sandbox says what is wrong
        pass
    return False


def _placeholder(name: str) -> Any:
    """What a function is that is not called but passed on: the sandbox knows it by its name."""

    def function() -> None: ...

    function.__name__ = name
    return function


def _read_value(text: str) -> Json:
    """The value of a result, which is written as JSON; that of a text, too, if it is an object or an array."""
    value = _read_json(text)
    return _read_json(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else value


def _read_json(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
