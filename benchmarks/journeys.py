"""Forty journeys with the real model: does it end its turn with the right answer, and does every call run once?

Each is a question, the tools that are offered, and what must be so afterwards: words of the final answer, and what was done. All
answers stand in the results of the tools, so that a right one cannot be guessed. 25 take one call, 15 take two or three. The same
is asked with tools put to the model as is known to suit it, and in the way of its chat template with guards, by turns.
"""

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmarks.table import show
from callsmith import Functions, Limits, Message, Request, Sampling
from callsmith.core.events import ToolStarted, TurnEnded
from callsmith.core.ports import Model
from callsmith.core.types.model_step import ModelStep
from callsmith.models import Options
from callsmith.models.local import LocalModel
from callsmith.models.opening import open_local, with_tool_prompt
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.loop import run

WEATHER = {"paris": "sunny, 24 degrees", "oslo": "snow, -3 degrees", "lima": "fog, 17 degrees", "cairo": "sandstorm, 38 degrees"}
RATES = {("usd", "eur"): 0.9, ("eur", "usd"): 1.1, ("gbp", "eur"): 1.2, ("eur", "jpy"): 160.0, ("usd", "jpy"): 150.0}
PHONES = {"ada": "555-0147", "ben": "555-0162", "cleo": "555-0199"}
FILES = {
    "todo.txt": "Water the orchids. Call the plumber.",
    "budget.txt": "Rent 930. Food 310.",
    "menu.txt": "Monday: lentil soup.",
}
ORDERS = {"A17": "shipped, arrives on Thursday", "B42": "waiting for payment", "C3": "delivered to the neighbour"}
WORDS = {
    ("cat", "elvish"): "mialin",
    ("dog", "elvish"): "huanor",
    ("bread", "dwarvish"): "brakul",
    ("water", "dwarvish"): "wodun",
}
PEOPLE_IN = {"zubrowka": 381_204, "freedonia": 97_310, "ruritania": 1_204_550}


class World:
    """The tools of one journey, and what they have done. `done` has the calls with side effects, as text."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.notes: dict[str, str] = {"shopping": "eggs, flour, 2 lemons", "meeting": "Room 4.12, Tuesday at 15:30"}

    def get_weather(self, city: str) -> dict[str, str]:
        """The weather in a city, now."""
        return {"city": city, "weather": found(WEATHER, city.split(",")[0].lower(), "city")}

    def convert_currency(self, amount: float, from_currency: str, to_currency: str) -> dict[str, Any]:
        """Convert an amount of money. Currencies are codes as USD, EUR, GBP, JPY."""
        rate = found(RATES, (from_currency.lower(), to_currency.lower()), "rate")
        return {"amount": round(amount * rate, 2), "currency": to_currency}

    def calculate(self, expression: str) -> float:
        """Calculate an arithmetic expression such as 12 * (3 + 4)."""
        if not re.fullmatch(r"[\d\s.+*/()-]{1,80}", expression) or "**" in expression:
            raise ValueError("only numbers and + - * / ( ) can be calculated")
        return round(float(eval(expression)), 4)

    def find_phone_number(self, name: str) -> str:
        """The phone number of a person in the address book."""
        return found(PHONES, name.split()[0].lower(), "person")

    def read_file(self, path: str) -> str:
        """The text of a file."""
        return found(FILES, path.removeprefix("./"), "file")

    def list_files(self) -> list[str]:
        """The names of the files in the folder."""
        return sorted(FILES)

    def order_status(self, order_id: str) -> str:
        """What has become of an order."""
        return found(ORDERS, order_id.upper(), "order")

    def translate(self, word: str, language: str) -> str:
        """Translate an English word."""
        return found(WORDS, (word.lower(), language.lower()), "word")

    def population(self, country: str) -> int:
        """How many people live in a country."""
        return found(PEOPLE_IN, country.lower(), "country")

    def read_note(self, title: str) -> str:
        """The text of a saved note."""
        return found(self.notes, title.lower(), "note")

    def write_note(self, title: str, text: str) -> str:
        """Save a note."""
        self.notes[title.lower()] = text
        self.done.append(f"note {text}")
        return "saved"

    def send_message(self, to: str, text: str) -> str:
        """Send a person a message."""
        self.done.append(f"message {to}: {text}")
        return "sent"

    def set_timer(self, minutes: int) -> str:
        """Start a timer."""
        self.done.append(f"timer {minutes}")
        return f"the timer rings in {minutes} minutes"

    def book_table(self, restaurant: str, people: int, time: str) -> dict[str, str]:
        """Book a table in a restaurant."""
        self.done.append(f"table {restaurant} {people} {time}")
        return {"confirmation": "TBL-7731"}

    def text_length(self, text: str) -> int:
        """How many characters a text has."""
        return len(text)


def found(among: Any, key: Any, what: str) -> Any:
    """What a tool finds; for what it does not know, an error that names all it knows."""
    if key not in among:
        raise ValueError(f"no such {what}; known: {', '.join(str(item) for item in among)}")
    return among[key]


@dataclass(frozen=True, slots=True)
class Journey:
    """A question with the names of its tools. `says` are patterns of the final answer, `does` of what was done, in any order."""

    question: str
    tools: str
    says: tuple[str, ...] = ()
    does: tuple[str, ...] = ()
    steps: int = 1


def one(question: str, tools: str, *says: str, does: tuple[str, ...] = ()) -> Journey:
    return Journey(question, tools, says, does)


def more(question: str, tools: str, *says: str, does: tuple[str, ...] = (), steps: int = 2) -> Journey:
    return Journey(question, tools, says, does, steps)


JOURNEYS = (
    one("What is the weather in Paris?", "get_weather", "sunny|24"),
    one("How cold is it in Oslo today?", "get_weather", "-3"),
    one("How hot is it in Cairo right now?", "get_weather population", "38"),
    one("Is there fog in Lima?", "get_weather calculate", "fog|yes"),
    one("How much is 50 USD in EUR?", "convert_currency", r"\b45\b"),
    one("Convert 30 GBP to EUR, please.", "convert_currency calculate", r"\b36\b"),
    one("I have 20 euros. How many yen is that?", "convert_currency get_weather", r"3,?200"),
    one("What is 137 * 46?", "calculate", r"6,?302"),
    one("Please work out (81 + 19) / 8 for me.", "calculate translate", r"12\.5"),
    one("What is Ada's phone number?", "find_phone_number", "555-0147"),
    one("How can I reach Cleo by phone?", "find_phone_number send_message", "555-0199"),
    one("What does the file todo.txt say?", "read_file", "orchids", "plumber"),
    one("How much is the rent according to budget.txt?", "read_file list_files", "930"),
    one("Which files are there?", "list_files", "todo", "budget", "menu"),
    one("Where is my order A17?", "order_status", "shipped|thursday"),
    one("Has order B42 been paid?", "order_status send_message", "payment|not"),
    one("What became of order C3?", "order_status", r"^(?!.*\bnot\b).*neighbou?r"),
    one("What is the Elvish word for dog?", "translate", "huanor"),
    one("How do you say bread in Dwarvish?", "translate get_weather", "brakul"),
    one("How many people live in Freedonia?", "population", r"97,?310"),
    one("What is the population of Ruritania?", "population calculate", r"1,?204,?550"),
    one("What does my note 'meeting' say?", "read_note", r"4\.12|15:30"),
    one("Set a timer for 12 minutes.", "set_timer", "12|timer", does=("timer 12",)),
    one("Book a table for 4 people at Luigi at 19:00.", "book_table", "TBL-7731|luigi|table", does=("table Luigi 4 19:00",)),
    one("Save a note with the title 'gate' and the text 'B19'.", "write_note read_note", "saved|note", does=("note .*B19",)),
    more(
        "Convert 50 USD to EUR and save the result as a note titled 'trip'.", "convert_currency write_note", does=("note .*45",)
    ),
    more(
        "Find Ben's phone number and save it in a note titled 'ben'.", "find_phone_number write_note", does=("note .*555-0162",)
    ),
    more("Read the file menu.txt and send its text to Cleo.", "read_file send_message", does=("message Cleo.*lentil",)),
    more(
        "Look up the weather in Oslo and send it to Ada as a message.",
        "get_weather send_message",
        does=("message Ada.*(snow|-3)",),
    ),
    more("What is the weather in Paris and in Cairo?", "get_weather", "sunny|24", "sandstorm|38"),
    more("Which country has more people, Freedonia or Zubrowka?", "population", r"^(?!.*freedonia has more).*zubrowka"),
    more(
        "Check order A17 and write what you find into a note titled 'order'.",
        "order_status write_note",
        does=("note .*(shipped|Thursday)",),
    ),
    more("Calculate 17 * 23 and save the result in a note titled 'product'.", "calculate write_note", does=("note .*391",)),
    more("Read my note 'meeting' and send it to Ben.", "read_note send_message", does=("message Ben.*(4.12|15:30)",)),
    more("How do you say cat in Elvish, and how do you say water in Dwarvish?", "translate", "mialin", "wod"),
    more(
        "Set a timer for 5 minutes and send Ada the message 'tea is ready soon'.",
        "set_timer send_message",
        does=("timer 5", "message Ada.*tea"),
    ),
    more("List the files, then tell me what menu.txt says.", "list_files read_file", "lentil"),
    more(
        "How many people live in Ruritania? Send the number to Cleo.",
        "population send_message",
        does=("message Cleo.*1,?204,?550",),
    ),
    more(
        "Translate dog into Elvish and bread into Dwarvish, and save both words in one note titled 'words'.",
        "translate write_note",
        does=("note .*(huanor.*brakul|brakul.*huanor)",),
        steps=3,
    ),
    more(
        "Find Ada's phone number, save it in a note titled 'ada', and set a timer for 3 minutes.",
        "find_phone_number write_note set_timer",
        does=("note .*555-0147", "timer 3"),
        steps=3,
    ),
)


@dataclass(slots=True)
class Outcome:
    """What became of a journey. `faults` says what is wrong with it; it is right where there are none."""

    journey: Journey
    answer: str
    calls: list[str]
    faults: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    asks: int = 0


async def travel(model: Model, journey: Journey) -> Outcome:
    """Ask the question and look at what came of it."""
    world, calls, begun = World(), list[str](), time.perf_counter()
    known = [getattr(world, name) for name in journey.tools.split() if hasattr(world, name)]
    steps: list[ModelStep] = []
    request = Request((Message.user(journey.question),), sampling=Sampling(max_tokens=LONGEST), explain=steps.append)
    ended = TurnEnded((), "stop")
    async for event in run(model, Functions(*known), request, limits=Limits(iterations=6)):
        match event:
            case ToolStarted(call):
                calls.append(f"{call.name} {json.dumps(call.arguments, sort_keys=True)}")
            case TurnEnded():
                ended = event
            case _:
                pass
    answer = ended.messages[-1].content.strip() if ended.messages and ended.messages[-1].role == "assistant" else ""
    outcome = Outcome(journey, answer, calls, seconds=time.perf_counter() - begun, asks=len(steps))
    outcome.faults = [*faults(journey, answer, world.done), *repeated(calls)]
    return outcome


def faults(journey: Journey, answer: str, done: Sequence[str]) -> Iterable[str]:
    if not answer:
        yield "empty"
    if re.search(r"the call is done|in plain words|without calling|tool results|^\s*[{\[`<]", answer, re.IGNORECASE):
        yield "copied"
    for pattern in journey.says:
        if not re.search(pattern, answer, re.IGNORECASE):
            yield f"does not say {pattern}"
    for pattern in journey.does:
        if not any(re.search(pattern, line, re.IGNORECASE | re.DOTALL) for line in done):
            yield f"did not {pattern}"
    for line in done:
        if not any(re.search(pattern, line, re.IGNORECASE | re.DOTALL) for pattern in journey.does):
            yield f"did, unasked: {line}"


def repeated(calls: Sequence[str]) -> list[str]:
    """Calls that ran more than once, with the same arguments."""
    return [f"ran twice: {call}" for call, times in Counter(calls).items() if times > 1]


LONGEST = 256  # tokens of an answer: some small models never come to an end
VERBOSE = "JOURNEYS_VERBOSE"  # in the environment: print each journey
ONLY = "JOURNEYS_ONLY"  # in the environment: one of the set-ups
EVERY = "JOURNEYS_EVERY"  # in the environment: 4 makes every fourth journey, for a look at the seconds
SETUPS = ("as known", "template, guards")
GUARDS = ("small",)


def set_up(model: LocalModel, spec: str, setup: str) -> Model:
    """The model as it is opened, or with its template's own way of showing tools and the guards of small models."""
    return model if setup == "as known" else guard_model(with_tool_prompt(model, spec, Options(), "template"), GUARDS)


async def measure(name: str, setups: Sequence[str], *, verbose: bool) -> None:
    """Make all journeys in each of the set-ups, one after another, and show what came of them."""
    model = open_local(name)
    models = {setup: set_up(model, name, setup) for setup in setups}

    async def made(setup: str, journey: Journey) -> Outcome:
        outcome = await travel(models[setup], journey)
        if verbose:
            verdict = f"{outcome.faults or 'right'}; {outcome.asks} asks, {outcome.seconds:.1f} s"
            print(f"{setup}: {journey.question}\n   {outcome.calls}\n   {outcome.answer[:200]!r}\n   {verdict}", flush=True)
        return outcome

    pairs = [(setup, journey) for journey in JOURNEYS[:: int(os.environ.get(EVERY, "1"))] for setup in setups]
    made_all = [await made(*pair) for pair in pairs]
    outcomes = {setup: [outcome for outcome, (of, _) in zip(made_all, pairs, strict=True) if of == setup] for setup in setups}
    rows: list[tuple[object, ...]] = []
    for setup, all in outcomes.items():
        for what, some in (
            ("one call", [o for o in all if o.journey.steps == 1]),
            ("two or three", [o for o in all if o.journey.steps > 1]),
        ):
            faulty = [" ".join(o.faults) for o in some]
            rows.append(
                (
                    f"{setup}, {what}",
                    len(some),
                    sum(not o.faults for o in some),
                    100 * sum(not o.faults for o in some) / len(some),
                    sum("empty" in text for text in faulty),
                    sum("copied" in text for text in faulty),
                    sum("ran twice" in text for text in faulty),
                    sum(o.asks for o in some) / len(some),
                    max(o.asks for o in some),
                    sum(o.seconds for o in some) / len(some),
                )
            )
    show(
        f"{name}: journeys that end with the right answer",
        ("", "journeys", "right", "%", "empty", "copied", "ran twice", "asks each", "most asks", "s each"),
        rows,
    )
    if len(outcomes) > 1:
        known, template = (outcomes[setup] for setup in SETUPS)
        for what, steps in (("one call", {1}), ("two or three", {2, 3}), ("all", {1, 2, 3})):
            took = [fmean(o.seconds for o in all if o.journey.steps in steps) for all in (known, template)]
            print(f"{what}: {took[0] / took[1]:.2f} of the seconds that the template's way takes")
    await model.close()


def main(model: str) -> None:
    setups = [os.environ[ONLY]] if ONLY in os.environ else SETUPS
    asyncio.run(measure(model, setups, verbose=VERBOSE in os.environ))
