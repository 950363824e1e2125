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
from typing import ClassVar, cast

from callsmith.core.schema import check_schema
from callsmith.core.types.quantities import parse_duration
from callsmith.core.types.thinking import EFFORTS
from callsmith.core.values import Call, Choice, Json, Message, Output, Request, Role, Sampling, Tool
from callsmith.wire import declare
from callsmith.wire.calls import read_arguments
from callsmith.wire.declare.thinking import BudgetFields, Thinking, settle_thinking
from callsmith.wire.errors import Failure, describe_error
from callsmith.wire.extensions import ChoiceFields, ExtensionFields
from callsmith.wire.fields import Fields, without_none
from callsmith.wire.images import check_role, read_image_data, write_image_data
from callsmith.wire.openai.chat import read_choice, read_parallel, write_choice
from callsmith.wire.sampling import LogprobFields, SamplingFields, stop_texts, token_limit, write_sampling, write_wanted
from callsmith.wire.tools import read_tools, write_function

_LOADING = "how a model is loaded was decided when the server began"
_MIROSTAT = "it belongs to mirostat, which is refused"
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_WINDOW = 64  # tokens that a penalty looks back on where a request does not say


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


def _read_messages(fields: Fields, key: str) -> tuple[Message, ...]:
    waiting = _WaitingCalls()
    messages: list[Message] = []
    for index, entry in enumerate(declare.read_many(OllamaMessageFields, fields, key)):
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


def _read_message(fields: "OllamaMessageFields", waiting: _WaitingCalls, number: int) -> Message:
    role = fields.role
    if role not in _ROLES:
        raise fields.error("role", f"{role!r} is none of {', '.join(_ROLES)}")
    message = Message(_ROLES[role], fields.content or "", images=fields.images or ())
    check_role(fields, "images", message)
    if message.role == "assistant":
        calls = (_read_call(call, f"call_{number}_{at}") for at, call in enumerate(fields.objects("tool_calls")))
        return replace(message, reasoning=fields.thinking or "", calls=tuple(calls))
    if message.role == "tool":
        name, call_id = fields.tool_name or fields.name or "", fields.tool_call_id or ""
        if answered := waiting.take(name, call_id):
            name, call_id = answered.name, answered.id
        return replace(message, name=name, call_id=call_id)
    return message


def _read_call(fields: Fields, spare_id: str) -> Call:
    function = fields.required_object("function")
    sent = function.get("arguments")
    arguments: Json = read_arguments(sent) if isinstance(sent, str) else sent
    if arguments is not None and not isinstance(arguments, dict):
        raise function.error("arguments", "expected an object")
    return Call(function.required_text("name"), cast(dict[str, Json], arguments or {}), fields.text("id") or spare_id)


class OllamaMessageFields(declare.RequestFields):
    """A message of a chat."""

    role = declare.required_text(type=" | ".join(f'"{role}"' for role in _ROLES))
    content = declare.text()
    images = declare.Field("string | string[]", read_image_data, "In Base64.")
    thinking = declare.text()
    tool_calls = declare.value(
        "partial {id: string, function!: partial {name!: string, arguments: object | string, index: integer}}[]"
    )
    tool_name = declare.text()
    name = declare.text("As tool_name.")
    tool_call_id = declare.text()


class OllamaOptionFields(SamplingFields):
    """How tokens are chosen."""

    num_predict = token_limit(minimum=-2)
    stop = stop_texts()
    refused: ClassVar = {"mirostat": (0,), "penalize_newline": (True,), "tfs_z": (1,)}
    ignored: ClassVar = {
        **dict.fromkeys(("embedding_only", "f16_kv", "logits_all", "low_vram", "main_gpu", "num_batch", "num_ctx"), _LOADING),
        **dict.fromkeys(("num_gpu", "num_thread", "numa", "use_mlock", "use_mmap", "vocab_only"), _LOADING),
        "mirostat_eta": _MIROSTAT,
        "mirostat_tau": _MIROSTAT,
        "num_keep": "nothing is dropped from a prompt",
    }

    def read(self, logprobs: int | None) -> Sampling:
        """The sampling that these options ask for."""
        self.refuse_unsupported()
        # With -2, an answer goes on until the context is full, which is as far as no limit goes.
        limit = None if self.get("num_predict") == -2 else self.num_predict
        sampling = self.read_sampling(limit, self.stop, logprobs)
        looks_back = self.get("repeat_penalty") is not None and "repeat_last_n" not in self.data
        return replace(sampling, penalty_window=_WINDOW) if looks_back else sampling


def _read_keep_alive(fields: Fields, key: str) -> float | None:
    """Seconds, or a text like "5m"; what is negative is for ever."""
    value = fields.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return parse_duration(value if isinstance(value, str) else str(value) if is_number else "")
    except ValueError:
        raise fields.error(key, 'expected seconds, or a text like "5m"') from None


def _read_think(fields: Fields, key: str) -> bool | str | None:
    value = fields.get(key)
    if isinstance(value, str) and value not in EFFORTS:
        raise fields.error(key, f"{value[:80]!r} is neither a boolean nor one of {', '.join(EFFORTS)}")
    return value if isinstance(value, str) else fields.flag(key)


def _read_format(fields: Fields, key: str) -> Output | None:
    value = fields.get(key)
    if value == "":
        return None
    if value == "json":
        return Output.json_object()
    if not isinstance(value, Mapping):
        raise fields.error(key, "is neither 'json' nor a JSON Schema")
    schema = cast(Mapping[str, Json], value)
    check_schema(schema, fields.at(key))
    return Output(schema, as_written=fields.flag("as_written") or False)


class OllamaAnswerFields(declare.ModelFields, LogprobFields, BudgetFields, ExtensionFields):
    """What both kinds of requests have."""

    stream = declare.flag("Whether the answer comes as a stream.", default=True)
    format = declare.Field('"" | "json" | object', _read_format, "json, or a JSON Schema that the answer has to fit.")
    as_written = declare.as_written()
    think = declare.Field(" | ".join(("boolean", *(f'"{effort}"' for effort in EFFORTS))), _read_think)
    keep_alive = declare.Field("number | string", _read_keep_alive, "How long the model stays loaded: seconds, or 5m.")
    options = declare.nested(OllamaOptionFields)

    def read_thinking(self) -> Thinking:
        """How much the model is to reason: a flag, or an effort."""
        think = self.think
        level = think if isinstance(think, str) else None
        return settle_thinking(None if isinstance(think, str) else think, level, self.read_budget())

    def read(self, messages: tuple[Message, ...]) -> OllamaRequest:
        """The request for an answer to these messages."""
        options, logprobs = self.options, self.read_wanted()
        prefill = bool(messages) and messages[-1].role == "assistant" and not messages[-1].calls
        request = Request(
            messages,
            sampling=options.read(logprobs) if options else Sampling(logprobs=logprobs),
            **self.read_thinking(),
            output=self.format,
            prefill=prefill,
        )
        stays = self.get("keep_alive") is not None
        return OllamaRequest(self.model or "", request, self.stream is not False, stays, self.keep_alive)


@declare.reuse
def _read_tools(fields: Fields, key: str) -> tuple[Tool, ...]:
    return read_tools(fields.objects(key), "parameters", api="ollama")


class OllamaChatFields(OllamaAnswerFields, ChoiceFields, component="OllamaChatRequest"):
    """A chat to be continued."""

    messages = declare.Field(
        OllamaMessageFields, _read_messages, "Without any, the model is loaded, or with keep_alive 0 unloaded.", is_array=True
    )
    tools = declare.Field("OllamaTool[]", _read_tools)
    tool_choice = declare.Field("ToolChoice", read_choice)
    parallel_tool_calls = declare.flag()


class OllamaGenerateFields(OllamaAnswerFields, component="OllamaGenerateRequest"):
    """A prompt to be answered."""

    prompt = declare.text()
    system = declare.text()
    refused: ClassVar = {
        "context": ([],),
        "height": (0,),
        "images": ([],),
        "raw": (False,),
        "steps": (0,),
        "suffix": ("",),
        "template": ("",),
        "width": (0,),
    }


class OllamaShowFields(declare.RequestFields, component="OllamaShow"):
    """The model that is to be described."""

    model = declare.ModelFields.model
    name = declare.text("As model.")


def read_chat(body: Json) -> OllamaRequest:
    """The request to `/api/chat`; a UsageError names the field that is wrong."""
    fields = OllamaChatFields.of(body, "")
    chat = fields.read(fields.messages or ())
    request = replace(
        chat.request,
        tools=fields.tools or (),
        choice=fields.tool_choice or Choice(),
        parallel=read_parallel(fields),
        policy=fields.tool_choice_policy,
        call_bias=fields.call_bias,
    )
    if request.tools:
        request.choice.among(request.tools)
    return replace(chat, request=request)


def read_generate(body: Json) -> OllamaRequest:
    """The request to `/api/generate`: one prompt, with a system message before it."""
    fields = OllamaGenerateFields.of(body, "")
    fields.refuse_unsupported()
    system = (Message.system(fields.system),) if fields.system else ()
    return fields.read((*system, Message.user(fields.prompt)) if fields.prompt else ())


def write_chat(chat: OllamaRequest) -> dict[str, Json]:
    """The body that `read_chat` reads back as the same request. Choices of tools travel as in chat completions."""
    request = chat.request
    options = _write_options(request.sampling)
    output = request.output
    format = None if output is None else "json" if output == Output.json_object() else output.schema
    body: dict[str, Json] = {
        "model": chat.model,
        "messages": [_write_message(message) for message in request.messages],
        "tools": [write_function(tool) for tool in request.tools] or None,
        "tool_choice": write_choice(request.choice),
        "parallel_tool_calls": request.parallel,
        "tool_choice_policy": request.policy,
        "call_bias": request.call_bias,
        "think": request.effort or request.thinking,
        "thinking_token_budget": request.thinking_budget,
        "format": format,
        "as_written": True if output is not None and output.as_written else None,
        "options": options or None,
        **write_wanted(request.sampling.logprobs),
    }
    return {**without_none(body), "stream": chat.stream}


def _write_options(sampling: Sampling) -> dict[str, Json]:
    """The options, by Ollama's names. A penalty looks back on `_WINDOW` tokens there unless something else is said."""
    options = without_none(write_sampling(sampling, "num_predict"))
    if (penalty := options.pop("repetition_penalty", None)) is not None:
        options = {"repeat_last_n": -1, **options, "repeat_penalty": penalty}
    return options


def _write_message(message: Message) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "role": message.role,
        "content": message.content,
        "images": write_image_data(message.images),
        "thinking": message.reasoning,
        "tool_calls": [write_call(call, at) for at, call in enumerate(message.calls)],
        "tool_name": message.name,
        "tool_call_id": message.call_id,
    }
    return {key: value for key, value in fields.items() if value or key == "content"}


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
