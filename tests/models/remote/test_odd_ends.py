"""Answers that end oddly, or are asked for with what an API does not take: withheld ones, stop strings, messages without text."""

import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.events import Text
from callsmith.core.values import Call, Message, Sampling, Tool
from tests.models.remote.scripted import answer, call_delta, calls_of, chat, end_of, lines, remote, sse, text_of
from tests.models.remote.test_hostile import ask, sent
from tests.scripted_server import http, scripted

LIST = Tool("list_files", "", {"type": "object", "properties": {"path": {"type": "string"}}})


def message(text: str, stop_reason: str) -> bytes:
    start: dict[str, Any] = {
        "type": "message_start",
        "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}},
    }
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}}
    end = {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 3}}
    return sse(start, block, {"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"}, done=False)


WITHHELD = {
    "chat": chat({"content": "Well,"}, finish="content_filter"),
    "anthropic": message("Well,", "refusal"),
    "responses": sse(
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Well,"},
        {
            "type": "response.incomplete",
            "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": []},
        },
        done=False,
    ),
}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {},
    "/v1/messages": {"max_tokens": 9},
    "/v1/responses": {"input": "Hi", "messages": None},
}


def why(path: str, answered: Any, *, stream: bool) -> Any:
    """Why an answer has ended, in the words of its API."""
    if path == "/v1/messages":
        last = sent(answered)[-2]["delta"] if stream else answered.json()
        return last["stop_reason"]
    if path == "/v1/responses":
        response = sent(answered)[-1]["response"] if stream else answered.json()
        return response["status"], response["incomplete_details"]["reason"]
    choices = [chunk["choices"][0] for chunk in sent(answered)] if stream else answered.json()["choices"]
    return choices[-1]["finish_reason"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("api", WITHHELD)
async def test_that_the_rest_is_withheld_is_told_in_every_dialect(api: str, path: str, stream: bool) -> None:
    words = {"/v1/messages": "refusal", "/v1/responses": ("incomplete", "content_filter")}
    async with scripted(WITHHELD[api]) as server:
        answered = await ask(remote(server, api), path=path, stream=stream, **ASKED[path])
    assert "Well," in answered.text
    assert why(path, answered, stream=stream) == words.get(path, "content_filter")


async def test_a_call_that_is_withheld_in_the_middle_is_no_call() -> None:
    async with scripted(chat(call_delta("list_files", ""), finish="content_filter")) as server:
        events = await answer(remote(server), tools=(LIST,))
    assert (calls_of(events), end_of(events).reason) == ([], "filtered")


async def test_stop_strings_beyond_what_an_api_takes_stop_all_the_same() -> None:
    stops = ("one", "two", "three", "four", "five", "six")
    async with scripted(chat({"content": "and then five more"})) as server:
        events = await answer(remote(server, provider="openai"), tools=(), sampling=Sampling(stop=stops))
    assert server.asked[0]["stop"] == ["one", "two", "three", "four"]
    assert (text_of(events), end_of(events).matched, end_of(events).report.notices) == ("and then ", "five", ())


async def test_anthropic_is_sent_no_blank_stop_strings_and_the_text_ends_there() -> None:
    async with scripted(message("One.\n\nTwo.", "end_turn")) as server:
        sampling = Sampling(stop=("\n\n", "END"))
        events = await answer(remote(server, "anthropic", provider="anthropic"), tools=(), sampling=sampling)
    assert server.asked[0]["stop_sequences"] == ["END"]
    assert text_of(events) == "One."


@pytest.mark.parametrize("key", ["stop_reason", "matched_stop"])
async def test_the_stop_string_that_a_server_names_is_told(key: str) -> None:
    last = {"choices": [{"index": 0, "delta": {"content": "One."}, "finish_reason": "stop", key: "END"}]}
    async with scripted(sse(last)) as server:
        answered = await ask(remote(server), path="/v1/messages", max_tokens=9, stop_sequences=["###", "END"])
    assert (answered.json()["stop_reason"], answered.json()["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize("says", ["end_turn", 151645, None])
async def test_what_ends_an_answer_and_is_no_stop_string_is_none(says: Any) -> None:
    last = {"choices": [{"index": 0, "delta": {"content": "One."}, "finish_reason": "stop", "stop_reason": says}]}
    async with scripted(sse(last)) as server:
        events = await answer(remote(server), tools=())
    assert (end_of(events).reason, end_of(events).matched) == ("stop", "")


async def test_where_an_api_has_no_stop_strings_the_text_ends_at_them() -> None:
    whole = {"object": "response", "status": "completed", "output": [{"type": "message", "content": [{"text": "One. END Two."}]}]}
    async with scripted(http(json.dumps(whole).encode())) as server:
        events = await answer(remote(server, "responses", provider="openai"), tools=(), sampling=Sampling(stop=("END",)))
    assert "stop" not in server.asked[0]
    assert (text_of(events), end_of(events).report.notices) == ("One. ", ())


async def test_anthropic_is_sent_no_messages_without_text() -> None:
    talk = (
        Message.user("Hi"),
        Message.assistant(""),
        Message.user("Are you there?"),
        Message.assistant(" \n"),
        Message.user("?"),
    )
    async with scripted(message("Yes.", "end_turn")) as server:
        await answer(remote(server, "anthropic", provider="anthropic"), messages=talk, tools=())
    assert [said["content"] for said in server.asked[0]["messages"]] == ["Hi", "Are you there?", "?"]


async def test_half_a_surrogate_pair_is_sent_as_a_question_mark() -> None:
    async with scripted(chat({"content": "Hi"})) as server:
        await answer(remote(server), messages=(Message.user("A smile: \ud83d"),), tools=())
    assert server.asked[0]["messages"][0]["content"] == "A smile: ?"


async def test_a_call_and_its_result_without_text_are_sent_to_anthropic() -> None:
    talk = (
        Message.user("Look."),
        Message.assistant(calls=[Call("list_files", {}, "a")]),
        Message("tool", "", call_id="a", name="list_files"),
    )
    async with scripted(message("Nothing.", "end_turn")) as server:
        await answer(remote(server, "anthropic", provider="anthropic"), messages=talk, tools=(LIST,))
    kinds = [said["content"][0]["type"] for said in server.asked[0]["messages"][1:]]
    assert kinds == ["tool_use", "tool_result"]


WHOLE = json.dumps({"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}).encode()
STREAM = chat({"content": "Hi"}).partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(("body", "kind"), [(WHOLE, "application/json"), (STREAM, "text/event-stream")], ids=["whole", "stream"])
async def test_a_mark_of_the_byte_order_is_no_part_of_an_answer(body: bytes, kind: str) -> None:
    async with scripted(http(b"\xef\xbb\xbf" + body, kind=kind)) as server:
        events = await answer(remote(server), tools=())
    assert text_of(events) == "Hi"


async def test_the_last_line_of_an_answer_may_have_no_message() -> None:
    row = {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": False}
    async with scripted(lines(row, {"model": "m", "done": True, "done_reason": "length", "eval_count": 7})) as server:
        events = await answer(remote(server, "ollama"), tools=())
    assert (text_of(events), end_of(events).reason, end_of(events).usage.completion) == ("Hi", "length", 7)


async def test_a_log_probability_just_above_zero_is_zero() -> None:
    token = {"token": "Hi", "logprob": 1e-7, "bytes": [72, 105], "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [token]}, "finish_reason": "stop"}
    async with scripted(sse({"choices": [choice]})) as server:
        events = await answer(remote(server), tools=(), sampling=Sampling(logprobs=0))
    assert [token.logprob for event in events if isinstance(event, Text) for token in event.logprobs] == [0.0]


async def test_deltas_without_a_number_that_repeat_the_id_are_one_call() -> None:
    def delta(id: str, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"id": id, "function": {"name": "list_files", "arguments": arguments}}]}

    pieces = [delta("a", '{"path":'), delta("a", ' "/tmp"}'), delta("b", '{"path": "/"}')]
    async with scripted(chat(*pieces, finish="tool_calls")) as server:
        events = await answer(remote(server), tools=(LIST,))
    assert calls_of(events) == [("list_files", {"path": "/tmp"}), ("list_files", {"path": "/"})]
