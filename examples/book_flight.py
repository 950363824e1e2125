"""A conversation of several turns: flights are searched at once, and one is booked only if you agree.

python examples/book_flight.py
"""

import asyncio
import sys

from callsmith import Approved, Confirmed, Conversation, Denied, Functions, open_model, tool

FLIGHTS = {"AX100": {"to": "NYC", "time": "10:00", "price": 250}, "AX200": {"to": "NYC", "time": "18:30", "price": 190}}
booked: list[str] = []


@tool
def search_flights(destination: str) -> list[dict]:
    """Search flights to a city.

    Args:
        destination: The code of the city, such as NYC.
    """
    return [{"flight": name, **flight} for name, flight in FLIGHTS.items() if flight["to"] == destination.upper()]


@tool(side_effects=True)
def book_flight(flight: str) -> str:
    """Book a flight by its number."""
    if flight not in FLIGHTS:
        raise ValueError(f"there is no flight {flight}; there are {', '.join(FLIGHTS)}")
    booked.append(flight)
    return f"{flight} is booked"


async def main(model: str = "qwen2.5-coder-1.5b", answer: str = "") -> None:
    conversation = Conversation(open_model(model), Confirmed(Functions(search_flights, book_flight)), policy="required_first_hop")
    for said in ("Which flights are there to NYC?", "Book flight AX200."):
        print("you:", said)
        reply = await conversation.send(said)
        while reply.pending:
            asked = reply.pending[0]
            yes = answer or input(f"{asked.call.name} {asked.call.text}: may it run? [y/n] ")
            decision = Approved() if yes.startswith("y") else Denied("The user does not want that.")
            reply = await conversation.decide(asked.call.id, decision)
        print("model:", reply.text)
    print("booked:", booked)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
