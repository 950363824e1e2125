"""Turns as the model wrote them, put back into later prompts.

Clients drop the reasoning of a turn and spell its calls anew. Then the prompt of the next turn no longer begins with the text
that the engine has in its KV cache, and the model no longer sees what it thought. Where a turn is known as it was written, and
the client shows the same calls and words, the prompt goes on from that text:

    the prompt of that turn + what the model wrote + what the template has behind the turn

All texts are as they are before their breaks are removed (`escaping`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from callsmith.core.values import Call, Message
from callsmith.formats.algebra import Format, literals_of


@dataclass(frozen=True, slots=True)
class RawTurn:
    """A turn with calls as the model wrote it.

    `rendered` is what the template made of the messages before it, `prompt` the text that was continued: the same, or one with
    earlier turns in it as they were written. `message` is the turn as clients saw it.
    """

    rendered: str
    prompt: str
    answer: str
    message: Message

    @property
    def size(self) -> int:
        """How much text it holds."""
        return len(self.rendered) + len(self.prompt) + len(self.answer)


FindTurn: TypeAlias = Callable[[str], RawTurn | None]  # by the id of its first call
Render: TypeAlias = Callable[[Sequence[Message]], str]
_OTHER: Final = "\ufdd3"  # no text has it


def splice(text: str, messages: Sequence[Message], find: FindTurn, render: Render, format: Format) -> str:
    """The text, which is what the template makes of these messages, with turns as the model wrote them where they are known.

    One look is enough: the latest known turn has the earlier ones in its prompt. A turn that the model wrote in another way than
    the template would is left as it is.
    """
    latest = _latest(messages, find)
    if latest is None:
        return text
    at, turn = latest
    if text.startswith(turn.prompt + turn.answer) or render(messages[:at]) != turn.rendered:
        return text  # nothing was changed, or more than this turn
    before, message, after = messages[:at], messages[at], messages[at + 1 :]
    other_call = Call(message.calls[-1].name, {_OTHER: _OTHER}, message.calls[-1].id)
    with_other_arguments = replace(message, calls=(*message.calls[:-1], other_call))
    start = len(text) - _share(text[::-1], render((*before, with_other_arguments, *after))[::-1])
    end = len(text)
    if after:
        with_other_words = replace(after[0], content=_OTHER + after[0].content)
        end = _share(text, render((*before, message, with_other_words, *after[1:])))
    length = _written_already(turn.answer, text[start:end])
    if not length or any(marker in text[start + length : end] for marker in _markers(format)):
        return text
    return turn.prompt + turn.answer + text[start + length :]


def _latest(messages: Sequence[Message], find: FindTurn) -> tuple[int, RawTurn] | None:
    """The latest turn that is known as it was written; not one with thoughts from before the user spoke again, which templates
    leave out."""
    is_old = False
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        is_old |= message.role == "user"
        turn = find(message.calls[0].id) if message.calls else None
        if turn and _is_same(message, turn.message) and not (is_old and turn.message.reasoning):
            return at, turn
    return None


def _is_same(prompted: Message, answer: Message) -> bool:
    one, other = ([(call.id, call.name, call.arguments) for call in message.calls] for message in (prompted, answer))
    return one == other and prompted.content.strip() == answer.content.strip()


def _markers(format: Format) -> Iterator[str]:
    """The markers around and in calls."""
    for node in (*format.calls.item, *format.calls.close):
        yield from (text.strip() for text in literals_of(node) if len(text.strip()) > 2)


def _share(text: str, other: str) -> int:
    """How long the text is that both begin with."""
    least, most = 0, min(len(text), len(other))
    while least < most:
        size = (least + most + 1) // 2
        least, most = (size, most) if text[:size] == other[:size] else (least, size - 1)
    return least


def _written_already(answer: str, rest: str) -> int:
    """Where in the rest of the turn, behind its last arguments, the model has ended; white space aside. 0: nowhere."""
    tail = "".join(answer.split())[::-1]
    marks = [at for at, character in enumerate(rest) if not character.isspace()]
    head = "".join([rest[at] for at in marks])
    alike = [_share(head[:size][::-1], tail) for size in range(1, len(head) + 1)]
    most = max(alike, default=0)
    return marks[alike.index(most)] + 1 if most else 0
