"""Every history that a client may send renders behind every chat template; the few that cannot are refused by the message."""

from pathlib import Path

import pytest

from callsmith.core.errors import ModelError, UsageError
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import prompt_for
from callsmith.formats.prompt.template import Template
from tests.formats.templates import REAL, detected, needs_corpus, real

ADD = Tool(
    "add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
)
SYSTEM, USER, MORE = Message.system("Rules."), Message.user("First?"), Message.user("Then?")
ANSWER, SILENCE = Message.assistant("Said."), Message.assistant("")
DEEP = {"a": {"b": [1, None, {"c": "ü\n\"'<"}]}, "d": True, "e": 1.5}


def calling(*ids: int, name: str = "add", arguments: dict | None = None, text: str = "", reasoning: str = "") -> Message:
    values = {"a": 1} if arguments is None else arguments
    return Message.assistant(text, reasoning=reasoning, calls=[Call(name, values, f"call_{id}") for id in ids])


def result(id: int, value: object = "3") -> Message:
    return Message.tool(Result(f"call_{id}", "add", value))


DENIED = Message.tool(Result("call_1", "add", "The user said no.", ok=False, code="denied"))
HISTORIES = {
    "one question": (USER,),
    "rules and a question": (SYSTEM, USER),
    "two questions": (USER, MORE),
    "rules twice": (SYSTEM, SYSTEM, USER),
    "rules in the middle": (USER, SYSTEM, ANSWER, MORE),
    "an answer first": (ANSWER, USER),
    "an answer last": (USER, ANSWER),
    "two answers": (USER, ANSWER, ANSWER, MORE),
    "an empty question": (Message.user(""),),
    "an empty answer": (USER, SILENCE, MORE),
    "a round": (USER, calling(1), result(1)),
    "a round with words": (USER, calling(1, text="One moment."), result(1)),
    "a round with thoughts": (USER, calling(1, text="One moment.", reasoning="Hm."), result(1)),
    "two calls": (USER, calling(1, 2), result(1), result(2)),
    "results in another order": (USER, calling(1, 2), result(2), result(1)),
    "one of two results": (USER, calling(1, 2), result(1)),
    "two rounds": (USER, calling(1), result(1), calling(2), result(2)),
    "answered": (USER, calling(1), result(1), ANSWER, MORE),
    "a question after a result": (USER, calling(1), result(1), MORE),
    "rules after a result": (USER, calling(1), result(1), SYSTEM),
    "a denied call": (USER, calling(1), DENIED),
    "an open call": (USER, calling(1)),
    "a question after an open call": (USER, calling(1), MORE),
    "a round first": (calling(1), result(1), USER),
    "no arguments": (USER, calling(1, arguments={}), result(1)),
    "deep arguments": (USER, calling(1, arguments=DEEP), result(1)),
    "a tool that is gone": (USER, calling(1, name="gone"), result(1)),
    "a strange name": (USER, calling(1, name="a.b-c/d"), result(1)),
    "an empty result": (USER, calling(1), result(1, "")),
    "a result in JSON": (USER, calling(1), result(1, {"x": [1]})),
    "markup": (Message.user("<|im_end|>{{ x }}{% endif %}"), Message.assistant("<think>"), MORE),
}
HOPELESS = {"rules alone": (SYSTEM,), "a result without a call": (USER, result(9))}  # some templates have no place for them


def spoken(path: Path) -> Format:
    evidence = detected(path)
    return evidence.format if evidence else format_named("generic-xml")


def render(path: Path, messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> str:
    return prompt_for(Request(messages, tools), tools, real(path), spoken(path)).text


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
@pytest.mark.sampled
def test_every_history_renders_behind_every_template(path: Path) -> None:
    for tools in ((ADD,), ()):
        for name, messages in HISTORIES.items():
            text = render(path, messages, tools)
            for message in messages:
                if message.role == "user":
                    assert message.content in text, name


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
@pytest.mark.sampled
def test_a_history_that_a_template_has_no_place_for_is_refused_by_the_message(path: Path) -> None:
    for messages in HOPELESS.values():
        try:
            render(path, messages, (ADD,))
        except UsageError as error:
            assert error.field == f"messages.{len(messages) - 1}"
            assert f"of the role {messages[-1].role}" in str(error)


STRICT = """\
{% for m in messages %}{% if m.content == 'odd' %}{{ raise_exception('this is odd') }}{% endif %}{{ m.content }}{% endfor %}"""


def test_the_message_that_is_too_much_is_named() -> None:
    messages = (*(USER, ANSWER) * 20, Message.user("odd"), ANSWER, MORE)
    with pytest.raises(UsageError, match=r"this is odd \(message 40, of the role user\)") as caught:
        prompt_for(Request(messages), (), Template(STRICT), format_named("hermes"))
    assert caught.value.field == "messages.40"


def test_a_template_that_takes_no_messages_at_all_is_not_the_clients_mistake() -> None:
    with pytest.raises(ModelError, match="Give the model another chat template"):
        prompt_for(Request((USER,)), (), Template("{{ messages[0].nothing.there }}"), format_named("hermes"))
