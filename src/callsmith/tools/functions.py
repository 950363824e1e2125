"""Python functions as tools: the signature gives the schema, the docstring the descriptions.

    @tool(idempotent=True)
    async def weather(city: str, days: int = 1) -> Forecast:
        \"\"\"The weather forecast.

        Args:
            city: Where.
            days: How many days ahead.
        \"\"\"

    toolset = Functions(weather, any_other_function)

A function may be sync (it runs in a thread of its own), async, or a generator that yields `ToolProgress` and, last, its value.
A parameter annotated `Context` is filled in by the runtime and not shown to the model.
"""

import asyncio
import contextvars
import inspect
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import ToolProgress
from callsmith.core.failures import make_failure, unknown_tool
from callsmith.core.ports import Context, Toolset
from callsmith.core.signature import BoundArguments, Signature
from callsmith.core.types.field_checks import check_argument, check_fields
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.wire.tools import write_function

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

FunctionKind: TypeAlias = Literal["coroutine", "plain", "async generator", "generator"]
MARK = "__callsmith_tool__"  # the attribute that @tool sets on a function


@check_fields
@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """The options of `@tool`: what the signature and the docstring do not say."""

    name: str = ""
    description: str = ""
    side_effects: bool = False
    idempotent: bool = False
    timeout: float | None = None
    cache_seconds: float | None = None
    background: bool = False


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    side_effects: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
    cache_seconds: float | None = None,
    background: bool = False,
) -> Callable[[F], F]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function as a tool. The function itself is unchanged; `Functions` reads the mark."""

    def mark(marked: Any) -> Any:
        check_argument("function", marked, Callable[..., Any])
        declaration = ToolDeclaration(**options)
        inner: Any = cast(Any, marked).__func__ if isinstance(marked, staticmethod) else marked  # what its class hands out
        try:
            setattr(inner, MARK, declaration)
        except AttributeError as error:
            raise UsageError(f"{marked!r} cannot be marked: put @tool on the function itself, in its class") from error
        return cast(Any, marked)

    return mark if function is None else mark(function)


@dataclass(frozen=True, slots=True)
class Function:
    """A tool and the Python function behind it."""

    tool: Tool
    function: Callable[..., Any]
    signature: Signature
    kind: FunctionKind

    @classmethod
    def of(cls, function: Callable[..., Any], declared: Tool | None = None) -> "Function":
        """Make a tool of a function; `declared` is the definition shown to the model instead, if it was written by hand."""
        options: ToolDeclaration = getattr(function, MARK, ToolDeclaration())
        summary, descriptions = _read_docstring(function)
        signature = Signature(function, descriptions=descriptions, injected=Context)
        if declared is None:
            values = {field.name: getattr(options, field.name) for field in fields(options)}
            values["name"] = options.name or getattr(function, "__name__", "")
            values["description"] = options.description or summary
            declared = Tool(**values, parameters=signature.schema, source="python")
        return cls(declared, function, signature, _kind_of(function))


Tools: TypeAlias = Toolset | Sequence[Callable[..., Any] | Function]


class Functions:
    """A toolset of Python functions."""

    def __init__(self, *functions: Callable[..., Any] | Function) -> None:
        self._functions: dict[str, Function] = {}
        for entry in functions:
            check_argument("function", entry, Callable[..., Any] | Function)
            function = entry if isinstance(entry, Function) else Function.of(entry)
            if function.tool.name in self._functions:
                raise UsageError(f"two functions are called {function.tool.name!r}; name one with @tool(name=...)")
            self._functions[function.tool.name] = function

    async def tools(self) -> Sequence[Tool]:
        return [function.tool for function in self._functions.values()]

    def openai_schemas(self) -> list[dict[str, Json]]:
        """The tools as OpenAI's API has them: for a request, or a grammar (`callsmith grammar --tools FILE`)."""
        return [write_function(function.tool) for function in self._functions.values()]

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        """Run the function. What it raises is raised here: the runtime turns it into a Result."""
        function = self._functions.get(call.name)
        if function is None:
            yield unknown_tool(call, self._functions)
            return
        bound = function.signature.bind(call.arguments, context)
        if not isinstance(bound, BoundArguments):
            complaints = "; ".join(map(str, bound))
            yield make_failure(call, "bad_request", complaints, label="invalid_arguments")
            return
        await context.starting()
        value: Any = None
        produced: Any = None
        if function.kind == "coroutine":
            value = await function.function(*bound.positional, **bound.named)
        elif function.kind == "plain":
            value = await _run_in_thread(lambda: function.function(*bound.positional, **bound.named))
            value = await value if inspect.isawaitable(value) else value
            if inspect.isasyncgen(value):  # what a decorator has around the tool
                value, produced = None, value
        else:
            produced = function.function(*bound.positional, **bound.named)
        if produced is not None:
            async with closing(_iterate_in_threads(produced) if function.kind == "generator" else produced) as items:
                async for item in items:
                    if value is not None:  # only the next item shows that a value was not the last: the result
                        yield ToolProgress(call.id, text=str(value))
                        value = None
                    if isinstance(item, ToolProgress):
                        yield replace(item, call_id=call.id)
                    else:
                        value = item
        if isinstance(value, Result):  # of its own, for example a failure
            yield replace(value, call_id=call.id, name=call.name)
        else:
            yield Result(call.id, call.name, _as_json(value))


def as_toolset(tools: Tools) -> Toolset:
    """A toolset; a list of functions is one too."""
    toolset = Functions(*tools) if isinstance(tools, list | tuple) else tools
    return check_argument("toolset", toolset, Toolset, "[get_weather] will do")


def _as_json(value: Any) -> Json:
    if value is None or type(value) in (str, bool, int):  # JSON as it is; a subclass (an enum) may not be
        return value
    from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

    try:
        return json.loads(to_json(value, fallback=str, inf_nan_mode="strings"))
    except PydanticSerializationError:  # names of files that are no UTF-8, and bytes
        return to_jsonable_python(value, fallback=str, inf_nan_mode="strings", bytes_mode="base64")


def _kind_of(function: Callable[..., Any]) -> FunctionKind:
    target: Any = function
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    target = target if inspect.isroutine(target) or inspect.isclass(target) else type(target).__call__
    if inspect.isasyncgenfunction(target):
        return "async generator"
    if inspect.isgeneratorfunction(target):
        return "generator"
    return "coroutine" if inspect.iscoroutinefunction(target) else "plain"


async def _iterate_in_threads(items: Generator[Any, None, Any]) -> AsyncGenerator[Any, None]:
    """A sync generator with each step in a thread; its return value, if any, comes last."""
    end = object()
    returned: Any = None
    variables = contextvars.copy_context()  # one for all steps: what the first one sets, the last one resets

    def step() -> Any:
        nonlocal returned
        try:
            return next(items)
        except StopIteration as stop:  # may not cross into a coroutine
            returned = stop.value
            return end

    while (item := await _run_in_thread(lambda: variables.run(step))) is not end:
        yield item
    if returned is not None:
        yield returned


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Run in a daemon thread of its own: a function that hangs blocks neither the other tools nor the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():  # the caller has given up
            return
        if error is None:
            future.set_result(cast(T, value))
        else:
            future.set_exception(error)

    def body() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = variables.run(work)
        except BaseException as raised:  # raised where it is awaited; as a RuntimeError where the event loop would misread it
            odd = isinstance(raised, StopIteration) or not isinstance(raised, Exception)
            error = RuntimeError(f"{type(raised).__name__}: {raised}") if odd else raised
        with suppress(RuntimeError):  # the event loop is closed already
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=body, name="callsmith-tool", daemon=True).start()
    return await future


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's text, and its description of each parameter (google, numpy and sphinx styles)."""
    text = inspect.getdoc(function)
    if not text or not (inspect.isroutine(function) or inspect.isclass(function)):
        return "", {}
    import griffe

    # Sections that name no types make griffe warn; here the types come from the annotations.
    quiet: Any = {style: {"warnings": False} for style in ("google", "numpy", "sphinx")}
    sections = griffe.Docstring(text).parse("auto", per_style_options=quiet)
    texts: list[str] = []
    descriptions: dict[str, str] = {}
    for section in sections:
        if isinstance(section, griffe.DocstringSectionText):
            texts.append(section.value)
        elif isinstance(section, griffe.DocstringSectionAdmonition):
            texts.append(f"{section.title}: {section.value.description}")
        elif isinstance(section, griffe.DocstringSectionParameters):
            descriptions |= {parameter.name.lstrip("*"): " ".join(parameter.description.split()) for parameter in section.value}
    return "\n\n".join(texts).strip(), descriptions
