"""Answers that cannot be wrong in form: into a type, one of several texts, a regular expression.

python examples/constrained.py
"""

import sys
from dataclasses import dataclass
from typing import Literal

from callsmith import Message, Output, Request, open_model, run_sync


@dataclass
class Ticket:
    """A ticket, as the model has to fill it in."""

    city: str
    passengers: int
    travel_class: Literal["economy", "business"]


def main() -> None:
    model = open_model(sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-1.5b")

    wish = Message.user("Two of us want to fly to New York, as cheaply as possible. Fill in the ticket.")
    ticket = run_sync(model, None, Request((wish,), output=Output(Ticket))).value
    print(ticket)

    mood = Message.user("'The flight was late and the food was cold.' Is that praise or a complaint?")
    print(run_sync(model, None, Request((mood,), output=Output(choices=("praise", "complaint")))).text)

    date = Message.user("On which date do flights leave on New Year's Eve of 2026? Write it like 2026-01-31.")
    print(run_sync(model, None, Request((date,), output=Output(pattern=r"\d{4}-\d{2}-\d{2}"))).text)


if __name__ == "__main__":
    main()
