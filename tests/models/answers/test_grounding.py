"""Whether the values of a call stand on something, and which calls can be made now."""

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text
from callsmith.core.values import Call, Message, Result, Tool
from callsmith.models.answers.grounding import (
    CallJudge,
    call_doubt,
    has_effects,
    is_given,
    made_up_values,
    said_in,
)
from callsmith.models.answers.normalizer import AnswerNormalizer
from tests.effort import tries

TEXT = {"type": "string"}
SEND = Tool(
    "send_message",
    "Send a message to somebody, as the default sender Old Harry (code 4711).",
    {"type": "object", "properties": {"to": TEXT, "text": TEXT, "via": {"enum": ["sms", "pigeon"]}}},
)
LOOK = Tool("find_contact", "Find somebody.", {"type": "object", "properties": {"name": TEXT}})
SAID = "Write to Ann Lee (ann@lee.org, +49 170 5550199) that the $45.00 of 2019 are paid, see https://lee.org/a."


def made_up(value: Any, conversation: str = SAID) -> list[str]:
    return made_up_values(Call("send_message", {"to": value}), SEND, conversation)


@pytest.mark.parametrize(
    "value",
    [
        "123-456-7890",
        "+1 555 123 4567",
        5551234567,
        "john@doe.org",
        "Call me at bob@lee.org",
        "https://other.net/b",
        "John Doe",
        "Jane Mary Doe",
        "in the year 2024",
        2024,
        "[phone number]",
        "<phone_number>",
        "{{contact.phone}}",
        "{phone}",
        "ann@example.com",
        "your_phone_number",
        "the result of find_contact",
        "PLACEHOLDER",
        "INSERT NAME",
        "')",
        "]}",
    ],
)
def test_what_stands_nowhere_and_cannot_be_the_model_s_own_words_is_made_up(value: Any):
    assert made_up(value) == [str(value)]
    assert made_up_values(Call("send_message", {"a": [{"b": value}]}), SEND, SAID) == [str(value)]


@pytest.mark.parametrize(
    "value",
    [
        "ann@lee.org",
        "+49 170 5550199",
        "https://lee.org/a",
        "Ann Lee",
        "Ann Smith",  # one of the names was said
        "in 2019",
        2019,
        45,
        45.0,
        "4,500",
        "$45",
        "Old Harry",
        4711,
        "sms",
        "Your bill is paid. Thank you!",
        "see you at 7",
        12,
        True,
        None,
        "",
        "[1]",
    ],
)
def test_what_was_said_or_the_tool_tells_or_is_plain_words_is_not_made_up(value: Any):
    assert made_up(value) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"to": "Ann Lee"}, True),
        ({"to": "ANN LEE"}, True),
        ({"to": "ann@lee.org", "via": "pigeon"}, True),
        ({"to": "Bertha"}, False),
        ({"text": "+49 170 5550199"}, True),
        ({"text": "+49 170 5550198"}, False),
        ({"n": 45}, True),
        ({"n": 46}, False),
        ({"n": 7, "b": True, "c": None}, True),
        ({"deep": [{"to": "Bertha"}]}, False),
        ({"deep": [{"to": "Ann"}]}, True),
        ({}, True),
    ],
)
def test_a_call_is_given_if_all_its_values_are(arguments: dict[str, Any], expected: bool):
    assert is_given(Call("send_message", arguments), SEND, SAID) == expected


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("order", True),
        ("order_pizza", True),
        ("order_status", False),
        ("orderStatus", False),
        ("get_order", False),
        ("sendEmail", True),
        ("SendSMS", True),
        ("mail.send", True),
        ("mail.send_all", True),
        ("send.list_mails", False),
        ("calendar.createEvent", True),
        ("list_files", False),
        ("search", False),
        ("ordering_info", False),
        ("settings", False),
        ("booking_history", False),
        ("book-table", True),
        ("_", False),
    ],
)
def test_the_name_of_a_tool_tells_whether_it_changes_something(name: str, changes: bool):
    assert has_effects(Tool(name)) == changes


def test_a_tool_that_says_so_changes_something_whatever_it_is_called():
    assert has_effects(Tool("look", side_effects=True)) and not has_effects(Tool("look"))


# -- how much speaks against a call


ASKED = "Where do I find Ann Lee, my contact, who was born in Rome?"


def doubt(arguments: dict[str, Any], tool: Tool = LOOK, conversation: str = ASKED, question: str = ASKED) -> float:
    return call_doubt(Call(tool.name, arguments), tool, conversation, question)


def test_the_fewer_values_were_given_the_more_speaks_against_a_call():
    assert doubt({"name": "Ann Lee"}) == 0
    assert 0 < doubt({"name": "Ann Lee", "town": "Paris"}) < doubt({"name": "Bertha", "town": "Paris"})
    assert doubt({"name": "Ann Lee", "town": "Rome", "x": "Paris"}) < doubt({"name": "Ann Lee", "x": "Paris"})


@pytest.mark.parametrize("value", ["ann lee", "Ms. Lee of Rome", "Roman", "borne by"])
def test_a_value_counts_as_given_by_its_words_and_how_they_begin(value: str):
    conversation = "Where is Ann Lee, who was bornelike in Rome, among Romans?"
    assert doubt({"name": value}, conversation=conversation) == 0


@pytest.mark.parametrize("conversation", ["the next 15 days", "the next fifteen days", "the next 015 days"])
def test_a_number_counts_as_given_where_it_was_said(conversation: str):
    assert doubt({"n": 15}, conversation=conversation) == 0 < doubt({"n": 23}, conversation=conversation)


def test_one_of_something_is_said_by_an_article():
    assert doubt({"n": 1}, conversation="An espresso, please.") == 0 < doubt({"n": 2}, conversation="An espresso, please.")


@pytest.mark.parametrize("value", ["EUR", "Mon", "Monday"])
def test_an_abbreviation_counts_as_given_by_the_word_that_begins_so(value: str):
    assert doubt({"x": value}, conversation="20 euros, Monday") == 0 < doubt({"x": "JPY"}, conversation="20 euros, Monday")


BREW = Tool(
    "brew_coffee",
    "Make coffee with the machine in the kitchen.",
    {"properties": {"drink": {"enum": ["espresso", "lungo"]}, "for": {"type": "string"}}},
)


@pytest.mark.parametrize(
    "question",
    [
        "Please make the usual for Ann.",  # a word of the description
        "Can you switch the machines on for Ann?",  # another form of one
        "Who wants that COFFEE? Ann!",  # a word of the name
        "The lungo for Ann, and please soon.",  # a value that the tool lists
        "Kannst du das für Ann machen?",  # in another language nothing can be told
        "Ann!",
        "What is it, Ann?",  # nothing is said beside the value
    ],
)
def test_who_speaks_of_what_a_tool_does_or_of_nothing_else_may_mean_it(question: str):
    assert doubt({"drink": "lungo", "for": "Ann"}, BREW, "Ann", question) == 0


@pytest.mark.parametrize(
    "question", ["Who was Ann, and which crown did she wear?", "Please tell Ann the time.", "Is Ann of age?"]
)
def test_a_tool_that_nobody_speaks_of_is_doubted(question: str):
    assert doubt({"drink": "lungo", "for": "Ann"}, BREW, "Ann", question) > 0


def test_a_call_without_values_of_its_own_is_doubted_but_less_than_one_with_wrong_ones():
    listed = Tool("find", "", {"properties": {"unit": {"enum": ["c", "f"]}, "n": {"type": "integer", "default": 5}}})
    assert 0 < doubt({}) < doubt({"name": "Bertha"})
    assert doubt({"unit": "c", "n": 77}, listed) == doubt({}, listed) == doubt({"is_on": True}, listed)


def test_a_call_that_changes_something_must_be_surer():
    assert doubt({"to": "Ann Lee"}, SEND) > doubt({"name": "Ann Lee"}, LOOK)


def test_what_a_call_may_rely_on_is_all_but_what_the_model_said_beside_calls():
    call = Call("find_contact", {"name": "Zoe"}, "c1")
    conversation = said_in(
        [
            Message.system("RULES"),
            Message.user("ASKED"),
            Message.assistant("GUESSED", calls=[call]),
            Message.tool(Result("c1", "find_contact", "FOUND")),
            Message.assistant("SAID"),
        ]
    )
    assert all(text in conversation for text in ("RULES", "ASKED", "Zoe", "FOUND", "SAID")) and "GUESSED" not in conversation


# -- which calls of an answer stand


def judge(margin: float | None, conversation: str = SAID) -> CallJudge:
    return CallJudge([SEND, LOOK], [Message.user(conversation)], margin)


FIND = Call("find_contact", {"name": "Ann Lee"}, "c1")
GOOD = Call("send_message", {"to": "ann@lee.org", "text": "paid"}, "c2")
BAD = Call("send_message", {"to": "john@doe.org", "text": "paid"}, "c3")


def test_a_first_call_that_was_asked_for_is_made_in_any_case():
    assert judge(None).stands(BAD, []) and not judge(None).is_in_doubt("send_message", [])


def test_a_first_call_stands_if_the_model_is_surer_than_what_speaks_against_it():
    strange = Call("find_contact", {"name": "Bertha"})
    known = judge(0.0, f"{SAID} Is she my contact?")
    assert known.stands(FIND, []) and known.doubt == 0
    assert not judge(0.0).stands(strange, []) and judge(9.0).stands(strange, [])
    seen = judge(0.0)
    assert not seen.stands(strange, []) and seen.doubt == call_doubt(strange, LOOK, SAID, SAID)


def test_a_call_that_changes_something_is_not_made_with_values_that_are_made_up_however_sure_the_model_is():
    assert judge(math.inf).stands(GOOD, []) and not judge(math.inf).stands(BAD, [])


@pytest.mark.parametrize("margin", [None, 0.0, math.inf])
def test_behind_another_call_values_that_are_made_up_do_not_stand(margin: float | None):
    assert judge(margin).is_in_doubt("send_message", [FIND])
    assert not judge(margin).stands(BAD, [FIND])
    assert judge(margin).stands(GOOD, [FIND])
    assert not judge(margin).stands(Call("send_message", {"to": "whoever"}), [FIND])
    assert judge(margin).stands(Call("find_contact", {"name": "whoever"}), [FIND])


def test_a_call_that_follows_on_results_needs_a_reason_however_sure_the_model_is():
    lock, light = (
        Tool("lock_doors", "Lock them."),
        Tool("set_light", "Set a light.", {"properties": {"percent": {}, "room": TEXT}}),
    )

    def made(conversation: str, call: Call) -> bool:
        return CallJudge([lock, light], [Message.user(conversation)], math.inf).stands(call, [])

    assert all(CallJudge([tool], [Message.user("?")], math.inf).is_in_doubt(tool.name, []) for tool in (LOOK, SEND))
    assert not made("What can you do?", Call("lock_doors")) and made("Please lock all of the doors.", Call("lock_doors"))
    bright = Call("set_light", {"percent": 50, "room": "attic"})
    assert not made("What can you do?", bright) and made("Please set the light of the attic to 50.", bright)


def test_what_was_done_is_not_done_again():
    call_judge = CallJudge([SEND, LOOK], [Message.user(SAID)], math.inf, earlier=[FIND])
    assert call_judge.is_in_doubt("find_contact", []) and not call_judge.stands(
        Call("find_contact", {"name": "Ann Lee"}, "c9"), []
    )
    assert call_judge.stands(Call("find_contact", {"name": "Ann"}, "c9"), [])


def test_a_tool_with_side_effects_waits_for_what_is_read_before_it():
    paying = Tool("pay", "", side_effects=True)
    call_judge = CallJudge([LOOK, SEND, paying], [Message.user(SAID)], None)
    assert not call_judge.stands(Call("pay", {"to": "Ann Lee"}), [FIND])
    assert call_judge.stands(Call("pay", {"to": "Ann Lee"}), [GOOD])


def test_a_call_that_has_to_wait_is_seen_in_its_beginning():
    judge = CallJudge([SEND, LOOK], [Message.user("Find Ann and send her: all is well here")], 5.0)
    calls = [Call("find_contact", {"name": "Ann"})]
    assert not judge.must_wait("send_message", calls, '{"to":"Ann","text":"all is well he')
    assert judge.must_wait("send_message", calls, '{"to":"Ann","text":"her number is 12')
    assert not judge.must_wait("send_message", calls, '{"to":"Ann","text":"number')  # the last word may go on
    assert not judge.must_wait("find_contact", calls, '{"name":"somebody quite else ')
    assert not judge.must_wait("send_message", [], '{"to":"Ann","text":"her number is 12')


def test_a_tool_that_nobody_knows_is_not_judged():
    assert judge(0.0).stands(Call("unknown"), []) and not judge(0.0).is_in_doubt("unknown", [FIND])


def events(*calls: Call) -> list[ModelEvent]:
    return [
        event
        for index, call in enumerate(calls)
        for event in (CallStarted(index, call.name), CallArguments(index, call.text), CallReady(index, call))
    ]


def shown(*calls: Call, margin: float | None = None) -> tuple[list[str], AnswerNormalizer]:
    answer = AnswerNormalizer(may_call=True, parallel=True, judge=judge(margin))
    seen = list(answer.filter([*events(*calls), Text("behind")]))
    return [type(event).__name__ for event in seen], answer


def test_an_answer_ends_before_the_first_call_that_does_not_stand_and_nothing_of_that_is_shown():
    whole = ["CallStarted", "CallArguments", "CallReady"]
    for calls, count in (([FIND, BAD, GOOD], 1), ([FIND, GOOD, BAD], 2)):
        seen, answer = shown(*calls)
        assert seen == whole * count and answer.is_cut and answer.is_complete
        assert [call.name for call in answer.message.calls] == [call.name for call in calls[:count]]
    seen, answer = shown(FIND, GOOD)
    assert seen == whole * 2 and not answer.is_cut
    seen, answer = shown(BAD, margin=math.inf)
    assert seen == [] and answer.is_cut and not answer.message.calls


def test_an_answer_ends_as_soon_as_a_call_is_seen_to_wait():
    """What is made up is not written to its end: nothing of the rest is asked of the engine."""
    filtered = AnswerNormalizer(
        may_call=True, parallel=True, judge=CallJudge([SEND, LOOK], [Message.user("Find Ann and write to her")], 9.0)
    )
    find_call = Call("find_contact", {"name": "Ann"})
    assert len(list(filtered.filter([CallStarted(0, "find_contact"), CallReady(0, find_call)]))) == 2
    assert list(filtered.filter([CallStarted(1, "send_message"), CallArguments(1, '{"to":"Ann","text":"')])) == []
    assert not filtered.is_complete
    assert list(filtered.filter([CallArguments(1, "Her number is 555")])) == []
    assert filtered.is_complete and [call.name for call in filtered.message.calls] == ["find_contact"]


def test_a_call_in_doubt_is_shown_when_it_is_complete_and_another_as_it_comes():
    for margin, at_once in ((None, ["CallStarted"]), (2.0, [])):
        answer = AnswerNormalizer(may_call=True, parallel=True, judge=judge(margin))
        begun, rest = events(FIND)[:1], events(FIND)[1:]
        first = [type(event).__name__ for event in answer.filter(begun)]
        assert first == at_once
        assert len(first) + len(list(answer.filter(rest))) == 3


# -- however long


LONG = {
    "one word": "a",
    "brackets": "[",
    "open brackets": "[a",
    "braces": "{",
    "angles": "<a",
    "dots": "a.",
    "numbers": "1",
    "lists of numbers": "1,",
    "apart": "12 ",
    "names": "Ann ",
    "space": " ",
}


def seconds(work: Callable[[], object]) -> float:
    def once() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once() for _ in range(3))


def asked_doubt(call: Call, tool: Tool, conversation: str) -> float:
    return call_doubt(call, tool, conversation, conversation)


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("judged", [made_up_values, is_given, asked_doubt], ids=lambda judged: judged.__name__)
@pytest.mark.sampled
def test_the_time_it_takes_grows_no_faster_than_the_value(judged: Callable[[Call, Tool, str], object], kind: str):
    def work(size: int) -> Callable[[], object]:
        call = Call("send_message", {"text": (LONG[kind] * size)[:size]})
        return lambda: judged(call, SEND, SAID)

    assert seconds(work(160_000)) < 40 * max(seconds(work(20_000)), 1e-4)  # 8 times as long; squared, it would take 64 times


@pytest.mark.generated
@pytest.mark.parametrize("kind", ["one word", "brackets", "open brackets", "apart"])
def test_millions_of_characters_are_judged(kind: str):
    size = tries(1_000_000, 10_000_000)
    call = Call("send_message", {"text": (LONG[kind] * size)[:size]})
    assert CallJudge([SEND], [Message.user(SAID)], 0.0).stands(call, []) in (True, False)


def test_many_words_and_many_values_are_judged_against_a_long_conversation():
    conversation = " ".join(f"word{number}" for number in range(20_000))
    text = " ".join(f"other{number}x" for number in range(20_000))
    call = Call("send_message", {"text": text, "many": [f"z{number}y" for number in range(50)]})
    assert doubt({"text": text, **call.arguments}, SEND, conversation) > 0
    assert not is_given(call, SEND, conversation)
