"""What models are told to say on the journeys, and the real OpenAI client that hears it."""

from typing import Any

import httpx2
from openai import AsyncOpenAI
from starlette.applications import Starlette

from callsmith.core.ports import Model
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app

HERMES = format_named("hermes")
WHOLE = 100_000
FORMATS = ("hermes", "generic-xml", "qwen3-coder", "mistral", "pythonic", "harmony", "deepseek-v32", "gemma4", "minimax-m3")
SAID = "Let me look at that."
CODE = "def f(x):\n    return \"{x}\" \\ '1'  # naïve 東京 🐈\n"
HI: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
                "required": ["path", "content"],
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
CALLS: list[tuple[str, Any]] = [("write_file", {"path": "a.py", "content": CODE, "mode": 420}), ("now", {})]
TIMER: Any = [
    {
        "type": "function",
        "function": {
            "name": "set_timer",
            "parameters": {
                "type": "object",
                "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 60}, "label": {"enum": ["tea", "eggs"]}},
                "required": ["minutes", "label"],
                "additionalProperties": False,
            },
        },
    }
]


def app_of(model: Model) -> Starlette:
    return create_app({"m": model})


def client_of(app: Starlette) -> AsyncOpenAI:
    transport = httpx2.ASGITransport(app=app)
    http = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
    return AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)


def scripted_model(format: Format, text: str, chunk: int) -> LocalModel:
    return LocalModel(Scripted([text], chunk=chunk, repeat=True), format, Template(CHATML))


def calling(*calls: Call, text: str = "") -> str:
    return write(HERMES, list(calls), text=text)


def answer_text(format: Format) -> str:
    calls = [Call(name, arguments, fit_id(f"call_{at}", format.ids)) for at, (name, arguments) in enumerate(CALLS)]
    return write(format, calls, text=SAID)


def function(name: str, parameters: Any) -> Any:
    return [{"type": "function", "function": {"name": name, "parameters": parameters}}]
