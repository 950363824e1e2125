"""The result of a job as chat templates show it: nothing that was said is lost, whichever form the turn begins in."""

from pathlib import Path

import pytest

from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.inference.detect import detect
from callsmith.formats.prompt.prompt import prompt_for
from callsmith.formats.prompt.template import Template
from callsmith.models.templates import template_named
from callsmith.runtime.jobs.background import RESULT_TOOL, result_call
from tests.formats.inference.test_detect import SPOKEN
from tests.formats.templates import REAL, needs_corpus, real

JOB = "job_0123456789abcdef01234567"
DRAW = Tool("draw", "Draws.", {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]})
CALL, ASKED = Call("draw", {"what": "a cat"}, "c1"), result_call(JOB)
BEGUN = (
    Message.user("Draw a cat."),
    Message.assistant(calls=[CALL]),
    Message.tool(Result("c1", "draw", f"draw goes on in the background as {JOB}.")),
    Message.assistant("I am drawing."),
)
RESULT = (Message.assistant(calls=[ASKED]), Message.tool(Result(ASKED.id, ASKED.name, "cat.png")))

FORMATS = {name: format for format, names in SPOKEN.items() for name in names}


def check(template: Template, format: str) -> None:
    for more in ((), (Message.user("And now?"),)):
        request = Request((*BEGUN, *more, *RESULT), (DRAW, RESULT_TOOL))
        text = prompt_for(request, request.tools, template, format_named(format)).text
        words = ("Draw a cat.", "a cat", "I am drawing.", "job_result", "cat.png", *(message.content for message in more))
        assert [word for word in words if word not in text] == []


@pytest.mark.req("R217")
@pytest.mark.parametrize("name", ["llama2", "llama3.0", "llama3.1", "mistral", "qwen2.5"])
def test_our_own_templates_show_it(name: str):
    template = Template(template_named(name), bos="<s>", eos="</s>")
    evidence = detect(template, formats().values())
    check(template, evidence.format.name if evidence else "hermes")


@needs_corpus
@pytest.mark.req("R217")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
@pytest.mark.sampled
def test_real_templates_show_it(path: Path):
    check(real(path), FORMATS.get(path.stem, "hermes"))
