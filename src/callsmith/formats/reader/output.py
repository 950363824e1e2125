"""What comes of the text that is read: it is gathered into events, text and thought without the white space that markers own."""

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought
from callsmith.core.values import Call
from callsmith.formats.algebra import Quotes, Says, Thinks
from callsmith.formats.reader.call_state import CallState
from callsmith.formats.reader.markers import SPECIAL_MARK, section_of, trimmed_edges
from callsmith.formats.reader.source import MAX_PIECES, join_small


class Output:
    """The events of a turn that have not been given out yet, and the part of the turn that text belongs to.

    `pieces` are those of the next event, not yet joined, and `event_type` is what it will be (None: `CallArguments`). `holds`: no
    event is given out until the answer is complete.
    """

    __slots__ = (
        "_has_specials", "_trims_end", "_withheld", "at_start", "call", "event_type", "events", "has_parts", "has_text", "holds",
        "index", "last_char", "part", "pending_space", "pieces", "prompt_chars", "text_closers", "thoughts",
    )  # fmt: skip

    def __init__(self, *, has_specials: bool) -> None:
        self.call: CallState
        self.events: list[ModelEvent] = []
        self.pieces: list[str] = []
        self.event_type: type[Text] | type[Thought] | None = Text
        self.index = 0  # of the next call
        self.holds = False
        self.part: Says | Thinks | Quotes | None = None
        self.thoughts: list[str] = []
        self.pending_space: str | None = None  # white space that counts only if text follows it
        self.last_char = ""  # of the text so far
        self.has_text = False  # some text was emitted, reasoning aside
        self.has_parts = False  # some part of the turn was entered
        self.text_closers: set[str] = set()  # closers whose openers were emitted as text: they are text too
        self.prompt_chars = 0  # how many characters of the unread text belong to the prompt
        self._has_specials = has_specials
        self._withheld: int | None = None  # the place in `events` of a `CallStarted` whose id is still to come
        self.at_start = False  # no text of this part has come yet, and white space before it is dropped
        self._trims_end = False  # white space at the end of this part belongs to its closer

    def drain(self) -> list[ModelEvent]:
        """Give out the events that are certain."""
        self.flush()
        if self.holds:
            return []
        events = self.events
        if self._withheld is None:
            self.events = []
            return events
        ready = events[: self._withheld]
        del events[: self._withheld]
        self._withheld = 0
        return ready

    def flush(self) -> None:
        """Make an event of the pieces."""
        if not self.pieces:
            return
        text = "".join(self.pieces)
        self.pieces.clear()
        if self._has_specials and SPECIAL_MARK in text:
            text = text.replace(SPECIAL_MARK, "")
        if self.event_type is None:
            self.call.text.append(text)
            if len(self.call.text) > MAX_PIECES:
                join_small(self.call.text)
            self.events.append(CallArguments(self.index, text))
        else:
            self.events.append(self.event_type(text))

    def emit(self, text: str) -> None:
        """Add text or thought to the next event. White space at an edge waits for more text; the prompt's text is left out."""
        if self.prompt_chars:
            text, self.prompt_chars = text[self.prompt_chars :], max(0, self.prompt_chars - len(text))
        if self.pending_space is not None:
            text = self.pending_space + text
            if not text or text.isspace():
                self.pending_space = text
                return
            text = text.lstrip() if self.at_start else text
            self.pending_space = None
        self.at_start = False
        self.has_text = self.has_text or self.event_type is Text
        if self._trims_end:
            bare = text.rstrip()
            if len(bare) < len(text):
                self.pending_space, text = text[len(bare) :], bare
        if self.event_type is Thought:
            self.thoughts.append(text)
        if text:
            self.last_char = text[-1]
            self.pieces.append(text)

    def enter(self, part: Says | Thinks | Quotes | None) -> None:
        """Begin a part: the text that follows belongs to it. None: plain text outside all parts."""
        self.flush()
        self.has_parts = True
        trims_start, self._trims_end = trimmed_edges(part)
        self.at_start = trims_start or isinstance(self.part, Thinks)
        self.part = part
        self.event_type = Thought if isinstance(part, Thinks) else Text
        self.pending_space = ""
        self.prompt_chars = 0
        self.text_closers.clear()

    def without_prompt(self, text: str) -> str:
        """Raw text without the characters of the prompt and without the marks of special tokens."""
        text, self.prompt_chars = text[self.prompt_chars :], 0
        return text.replace(SPECIAL_MARK, "") if self._has_specials else text

    # --- one call ---------------------------------------------------------------------------------------------------------

    def start_call(self, name: str, id: str) -> None:
        """Announce a call."""
        self.flush()
        self.event_type = None
        self.prompt_chars = 0
        waits = not id and self.call.parsed is None and section_of(self.call.part).has_id_last
        self._withheld = len(self.events) if waits else None
        self.events.append(CallStarted(self.index, name, id))

    def finish_call(self) -> None:
        """Give out the call, which is complete."""
        self.flush()
        call = self.call
        finished = Call(call.name, call.arguments(), call.id, "".join(call.text))
        self.events.append(CallReady(self.index, finished, call.repairs))
        self.end_call()

    def end_call(self) -> None:
        """Forget the call: what comes next is text."""
        if self._withheld is not None and self.call.id:
            self.events[self._withheld] = CallStarted(self.index, self.call.name, self.call.id)
        self._withheld = None
        self.call.reset()
        self.index += 1
        self.event_type = Text
