"""The benchmark's own checker, in a process of its own; it is started when it is first asked."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from callsmith.core.errors import ModelError
from callsmith.core.types.tables import as_object, as_text
from callsmith.core.values import Call, Json
from callsmith.evals.bfcl import checker_process
from callsmith.evals.cases.case import Case, World

SECONDS: Final = 30.0  # that one answer may take
_LONGEST: Final = 64 * 1024 * 1024  # bytes of an answer
# What the checker calls types. It knows no others, and takes a value of any that is among the acceptable ones.
_NAMES: Final = {"object": "dict", "number": "float", **{name: name for name in ("string", "integer", "boolean", "array")}}


@dataclass(frozen=True, slots=True)
class BfclVerdict:
    """What the checker says. `error_type` is the benchmark's name of what is wrong."""

    is_right: bool
    error_type: str = ""
    error: str = ""


class Checker:
    """The checker. A line that takes too long is wrong, and ends the process; the next line starts another. The worlds of other
    conversations end with it: they cannot be judged any more, which is an error."""

    def __init__(self, folder: Path, *, seconds: float = SECONDS, program: Path | None = None) -> None:
        self._folder = folder
        self._seconds = seconds
        self._program = program or Path(checker_process.__file__)
        self._process: asyncio.subprocess.Process | None = None
        self._scratch: TemporaryDirectory[str] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._worlds, self._ended = set[str](), set[str]()  # that have begun; of them those that ended with their process

    async def check_calls(self, case: Case, calls: Sequence[Call]) -> BfclVerdict:
        """Whether these are the right calls, by the benchmark's rules."""
        functions = case.functions or [_function(tool.name, tool.parameters) for tool in case.tools]
        answer = await self.ask(
            {"check": "calls", "category": _matcher(case), "functions": functions, "calls": _made(calls), "answers": case.answers}
        )
        return BfclVerdict(answer["valid"], answer["error_type"], answer["error"])

    async def run_calls(self, name: str, world: World, calls: Sequence[Call]) -> list[str]:
        """The results of calls in a world of that name, which they change; it begins with the first of them."""
        answer = await self.ask({"check": "run", "name": name, "world": _world(world), "calls": _made(calls)})
        if "results" not in answer:
            return [f"Error during execution: {answer['error']}" for _ in calls]
        return answer["results"]

    async def check_conversation(self, name: str, world: World, turns: Sequence[Sequence[Sequence[Call]]]) -> BfclVerdict:
        """Whether the calls, by turn and step, leave the world as the right ones do. The world of that name ends with it."""
        calls = [[_made(step) for step in turn] for turn in turns]
        answer = await self.ask({"check": "conversation", "name": name, "world": _world(world), "turns": calls})
        self._worlds.discard(name)
        return BfclVerdict(answer["valid"], answer["error_type"], answer["error"])

    async def ask(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a line."""
        async with self._one_at_a_time:
            world = str(line.get("name", ""))
            if world in self._ended:
                raise ModelError("the checker was stopped for another conversation, and its world is no more")
            if world:
                self._worlds.add(world)
            process = self._process or await self._start()
            assert process.stdin and process.stdout
            try:
                async with asyncio.timeout(self._seconds):
                    process.stdin.write(json.dumps(line).encode() + b"\n")
                    await process.stdin.drain()
                    answer = await process.stdout.readline()
            except TimeoutError:
                await self._stop()
                self._ended.discard(world)  # its own doing
                return {"valid": False, "error_type": "checker:timeout", "error": f"no verdict within {self._seconds:g} s"}
            except BaseException:  # an answer may still come, and belong to nobody
                await self._stop()
                raise
            if not answer:
                await self._stop()
                raise ModelError("the benchmark's checker has ended unexpectedly", hint="Is its folder in the cache whole?")
            return json.loads(answer)

    async def close(self) -> None:
        """End the process."""
        await self._stop()

    async def _start(self) -> asyncio.subprocess.Process:
        self._scratch = TemporaryDirectory(prefix="callsmith-bfcl-")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(self._program), str(self._folder)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._scratch.name,
            env={"BFCL_PROJECT_ROOT": self._scratch.name, "PATH": "", "HOME": self._scratch.name},
            limit=_LONGEST,
        )
        return self._process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        self._ended |= self._worlds
        self._worlds.clear()
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def _made(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [{call.name: dict(call.arguments)} for call in calls]


def _world(world: World) -> dict[str, Any]:
    return {"id": world.id, "classes": world.classes, "beginning": world.beginning, "gold": world.gold}


def _matcher(case: Case) -> str:
    """The category the checker chooses its rules by: one of its own, or what a case of one's own needs."""
    if case.functions:
        return case.category
    return "parallel" if len(case.answers) > 1 else "multiple"


def _function(name: str, parameters: Mapping[str, Json]) -> dict[str, Any]:
    """A tool as the checker knows functions."""
    properties: Any = parameters.get("properties") or {}
    return {
        "name": name,
        "parameters": {
            "type": "dict",
            "properties": {key: _rename_types(schema) for key, schema in properties.items()},
            "required": parameters.get("required") or [],
        },
    }


def _rename_types(schema: Any) -> dict[str, Any]:
    table: Mapping[str, Any] = as_object(schema)  # a schema may be true, too
    typed: dict[str, Any] = {"type": _NAMES.get(as_text(table.get("type")), "any")}
    if typed["type"] == "array":
        typed["items"] = _rename_types(table.get("items"))
    return typed
