"""The requests of `POST /api/chat` and `/api/generate`, and how Ollama's dialect writes errors.

    {"model": "qwen", "messages": [{"role": "user", "content": "Hi"}], "tools": […], "format": {…}, "options": {"num_predict": 9}}

Answers: `ollama/events.py`. As everywhere: unknown fields are skipped, and what would change the answer and is not supported
is refused by name. Calls have no ids in this dialect, so they get some here, and a result belongs to the first call of its
`tool_name` that still waits for one. Besides what Ollama knows: `tool_choice` (in any spelling of chat completions),
`parallel_tool_calls`, `tool_choice_policy` and `call_bias`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from callsmith.core.schema import check_schema
from callsmith.core.types.quantities import parse_duration
from callsmith.core.values import Call, Json, Message, Output, Request, Role, Sampling
from callsmith.wire.calls import read_arguments
from callsmith.wire.errors import Failure, describe_error
from callsmith.wire.extensions import read_call_bias, read_policy
from callsmith.wire.fields import Fields, without_none
from callsmith.wire.images import check_role, read_image_data, write_image_data
from callsmith.wire.logprobs import read_wanted, write_wanted
from callsmith.wire.openai.chat import (
    read_choice,
    read_functions,
    write_choice,
)
from callsmith.wire.sampling import read_sampling, write_sampling
from callsmith.wire.tools import write_function

# Fields that are not supported, each with the values that ask for nothing.
NEUTRAL_PROMPT: Mapping[str, tuple[Json, ...]] = {
    "context": ([],),
    "height": (0,),
    "images": ([],),
    "raw": (False,),
    "steps": (0,),
    "suffix": ("",),
    "template": ("",),
    "width": (0,),
}
# Options of which nothing comes, and why that does no harm.
_LOADING = "how a model is loaded was decided when the server began"
OPTION_HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("embedding_only", "f16_kv", "logits_all", "low_vram", "main_gpu", "num_batch", "num_ctx", "num_gpu"), _LOADING
    ),
    **dict.fromkeys(("num_thread", "numa", "use_mlock", "use_mmap", "vocab_only"), _LOADING),
    "mirostat_eta": "it belongs to mirostat, which is refused",
    "mirostat_tau": "it belongs to mirostat, which is refused",
    "num_keep": "nothing is dropped from a prompt",
}
# Options that are not supported.
NEUTRAL_OPTIONS: Mapping[str, tuple[Json, ...]] = {
    "mirostat": (0,),
    "penalize_newline": (True,),
    "tfs_z": (1,),
}
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_WINDOW = 64  # tokens that a penalty looks back on where a request does not say
_LEVELS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """What was asked, of which model, and whether as a stream. Without any messages, only to have the model loaded, or unloaded.

    `stays` says that the request has a `keep_alive`, and `stay_seconds` for how long the model stays loaded then, None: for ever.
    """

    model: str
    request: Request
    stream: bool = True
    stays: bool = False
    stay_seconds: float | None = None


def read_chat(body: Json) -> OllamaRequest:
    """The request to `/api/chat`; a UsageError names the field that is wrong."""
    fields = Fields.of(body, "")
    request = replace(
        _read_request(fields, _read_messages(fields)),
        tools=read_functions(fields, "tools"),
        choice=read_choice(fields, "tool_choice"),
        parallel=fields.flag("parallel_tool_calls"),
        policy=read_policy(fields),
        call_bias=read_call_bias(fields),
    )
    if request.tools:
        request.choice.among(request.tools)
    return _asked(fields, request)


def read_generate(body: Json) -> OllamaRequest:
    """The request to `/api/generate`: one prompt, with a system message before it."""
    fields = Fields.of(body, "")
    fields.refuse_unsupported(NEUTRAL_PROMPT)
    system, prompt = fields.text("system"), fields.text("prompt")
    messages = ((Message.system(system),) if system else ()) + (Message.user(prompt),) if prompt else ()
    return _asked(fields, _read_request(fields, messages))


def _asked(fields: Fields, request: Request) -> OllamaRequest:
    asked = OllamaRequest(fields.text("model") or "", request, fields.flag("stream") is not False)
    value = fields.get("keep_alive")
    return asked if value is None else replace(asked, stays=True, stay_seconds=_read_keep_alive(fields, value))


def _read_keep_alive(fields: Fields, value: Json) -> float | None:
    """Seconds, or a text like "5m"; what is negative is for ever."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return parse_duration(value if isinstance(value, str) else str(value) if is_number else "")
    except ValueError:
        raise fields.error("keep_alive", 'expected seconds, or a text like "5m"') from None


def _read_request(fields: Fields, messages: tuple[Message, ...]) -> Request:
    sampling = replace(_read_options(fields), logprobs=read_wanted(fields))
    prefill = bool(messages) and messages[-1].role == "assistant" and not messages[-1].calls
    return Request(messages, sampling=sampling, thinking=_read_think(fields), output=_read_format(fields), prefill=prefill)


def _read_options(fields: Fields) -> Sampling:
    options = fields.object("options")
    if options is None:
        return Sampling()
    options.refuse_unsupported(NEUTRAL_OPTIONS)
    if options.get("num_predict") == -2:  # until the context is full, which is as far as no limit goes
        options = Fields({**options.data, "num_predict": None}, options.path)
    window = {"repeat_last_n": _WINDOW} if options.get("repeat_penalty") is not None else {}
    return read_sampling(Fields({**window, **options.data}, options.path), "num_predict")


def _read_think(fields: Fields) -> bool | None:
    value = fields.get("think")
    if isinstance(value, str):
        if value not in _LEVELS:
            raise fields.error("think", f"{value!r} is neither a boolean nor one of {', '.join(_LEVELS)}")
        return True
    return fields.flag("think")


def _read_format(fields: Fields) -> Output | None:
    value = fields.get("format")
    if value is None or value == "":
        return None
    if value == "json":
        return Output.json_object()
    if not isinstance(value, Mapping):
        raise fields.error("format", "is neither 'json' nor a JSON Schema")
    schema = cast(Mapping[str, Json], value)
    check_schema(schema, fields.at("format"))
    return Output(schema, as_written=fields.flag("as_written") or False)


def _read_messages(fields: Fields) -> tuple[Message, ...]:
    waiting = _WaitingCalls()
    messages: list[Message] = []
    for index, entry in enumerate(fields.objects("messages")):
        message = _read_message(entry, waiting, index)
        for call in message.calls:
            waiting.add(call)
        messages.append(message)
    return tuple(messages)


class _WaitingCalls:
    """The calls without a result so far. A result belongs to the first one with its id, or else with its name, or else of all."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], deque[tuple[int, Call]]] = {}
        self._taken: set[int] = set()
        self._count = 0

    def add(self, call: Call) -> None:
        for key in (("id", call.id), ("name", call.name), ("name", "")):
            self._queues.setdefault(key, deque()).append((self._count, call))
        self._count += 1

    def take(self, name: str, call_id: str) -> Call | None:
        """The call that a result with this name and id belongs to; it waits no longer."""
        queue = self._queues.get(("id", call_id) if call_id else ("name", name), deque())
        while queue:
            number, call = queue.popleft()
            if number not in self._taken:
                self._taken.add(number)
                return call
        return None


def _read_message(fields: Fields, waiting: _WaitingCalls, number: int) -> Message:
    spelled = fields.required_text("role")
    if spelled not in _ROLES:
        raise fields.error("role", f"{spelled!r} is none of {', '.join(_ROLES)}")
    message = Message(_ROLES[spelled], fields.text("content") or "", images=read_image_data(fields, "images"))
    check_role(fields, "images", message)
    if message.role == "assistant":
        calls = (_read_call(one, f"call_{number}_{at}") for at, one in enumerate(fields.objects("tool_calls")))
        return replace(message, reasoning=fields.text("thinking") or "", calls=tuple(calls))
    if message.role == "tool":
        name, call_id = fields.text("tool_name") or fields.text("name") or "", fields.text("tool_call_id") or ""
        if answered := waiting.take(name, call_id):
            name, call_id = answered.name, answered.id
        return replace(message, name=name, call_id=call_id)
    return message


def _read_call(fields: Fields, spare_id: str) -> Call:
    function = fields.required_object("function")
    value = function.get("arguments")
    arguments: Json = read_arguments(value) if isinstance(value, str) else value
    if arguments is not None and not isinstance(arguments, dict):
        raise function.error("arguments", "expected an object")
    return Call(function.required_text("name"), cast(dict[str, Json], arguments or {}), fields.text("id") or spare_id)


def write_chat(asked: OllamaRequest) -> dict[str, Json]:
    """The body that `read_chat` reads back as the same request. Choices of tools travel as in chat completions."""
    request = asked.request
    options = without_none(write_sampling(request.sampling, "num_predict"))
    output = request.output
    format = None if output is None else "json" if output == Output.json_object() else output.schema
    body: dict[str, Json] = {
        "model": asked.model,
        "messages": [_write_message(message) for message in request.messages],
        "tools": [write_function(tool) for tool in request.tools] or None,
        "tool_choice": write_choice(request.choice),
        "parallel_tool_calls": request.parallel,
        "tool_choice_policy": request.policy,
        "call_bias": request.call_bias,
        "think": request.thinking,
        "format": format,
        "as_written": True if output is not None and output.as_written else None,
        "options": options or None,
        **write_wanted(request.sampling.logprobs),
    }
    return {**without_none(body), "stream": asked.stream}


def _write_message(message: Message) -> dict[str, Json]:
    written: dict[str, Json] = {
        "role": message.role,
        "content": message.content,
        "images": write_image_data(message.images),
        "thinking": message.reasoning,
        "tool_calls": [write_call(call, at) for at, call in enumerate(message.calls)],
        "tool_name": message.name,
        "tool_call_id": message.call_id,
    }
    return {key: value for key, value in written.items() if value or key == "content"}


def write_call(call: Call, number: int) -> dict[str, Json]:
    return {"id": call.id, "function": {"index": number, "name": call.name, "arguments": dict(call.arguments)}}


# Errors


def write_failure(status: int, message: str) -> Failure:
    """`{"error": "…"}`."""
    return Failure(status, {"error": message})


def write_error(error: BaseException) -> Failure:
    """An exception as the client may see it."""
    known = describe_error(error)
    return write_failure(known.status, known.message)
