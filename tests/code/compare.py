"""Thirty tasks of several calls each, by ordinary calls and by code: right answers, answers of the model, tokens.

python -m tests.code.compare --model qwen2.5-coder-1.5b --tasks 30
"""

import argparse
import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from callsmith import Conversation, Functions, Limits, open_model
from callsmith.code import CodeTools
from callsmith.core.errors import CallsmithError

CITIES = {"Bonn": ("ada", "bob"), "Oslo": ("eve", "kim", "lea"), "Rome": ("max",), "Bern": ("tom", "una"), "Cork": ("vic", "zoe")}
ITEMS = {"lamp": (40, 7), "desk": (120, 2), "chair": (60, 9), "shelf": (80, 0), "rug": (35, 4)}


def find_customers(city: str) -> list[str]:
    """The names of the customers in a city."""
    return [*CITIES.get(city, ())]


def get_orders(customer: str) -> list[dict[str, Any]]:
    """The orders of a customer: each has the keys "item" and "quantity"."""
    names = [name for customers in CITIES.values() for name in customers]
    if customer not in names:
        return []
    place = names.index(customer)
    return [{"item": [*ITEMS][(place + step) % len(ITEMS)], "quantity": 1 + (place + step) % 3} for step in range(2)]


def get_price(item: str) -> int:
    """The price of an item in euros."""
    return ITEMS[item][0]


def get_stock(item: str) -> int:
    """How many pieces of an item are in stock."""
    return ITEMS[item][1]


TOOLS = (find_customers, get_orders, get_price, get_stock)


@dataclass(frozen=True, slots=True)
class Task:
    """A question, code that answers it, and the answer."""

    question: str
    code: str
    answer: str

    def is_right(self, text: str) -> bool:
        words = re.findall(r"\w+", text.replace(",", ""))
        return self.answer in words


def list_tasks() -> list[Task]:
    return [*_make_tasks()]


def _make_tasks() -> Iterator[Task]:
    items = [*ITEMS]
    for place, city in enumerate(CITIES):
        first, second = items[place], items[(place + 2) % len(items)]
        yield _task(
            f"How many orders do all customers in {city} have together?",
            f"sum(len(get_orders(name)) for name in find_customers({city!r}))",
        )
        yield _task(
            f"How many pieces have the customers in {city} ordered in all?",
            f"sum(order['quantity'] for name in find_customers({city!r}) for order in get_orders(name))",
        )
        yield _task(
            f"What do all orders of the customers in {city} cost together, in euros?",
            f"orders = [order for name in find_customers({city!r}) for order in get_orders(name)]\n"
            "sum(order['quantity'] * get_price(order['item']) for order in orders)",
        )
        yield _task(
            f"What do 3 pieces of {first} and 2 pieces of {second} cost together, in euros?",
            f"3 * get_price({first!r}) + 2 * get_price({second!r})",
        )
        yield _task(
            f"How many pieces of {first} and {second} are in stock together?", f"get_stock({first!r}) + get_stock({second!r})"
        )
        yield _task(
            f"Which is more expensive, {first} or {second}? Answer with its name.",
            f"{first!r} if get_price({first!r}) > get_price({second!r}) else {second!r}",
        )


def _task(question: str, code: str) -> Task:
    names: dict[str, Any] = {tool.__name__: tool for tool in TOOLS}
    *before, last = code.split("\n")
    exec("\n".join(before), names)
    return Task(question, code, str(eval(last, names)))


async def compare(model_name: str, count: int) -> None:
    model, tasks = open_model(model_name), list_tasks()[:count]
    try:
        for name, tools in (("calls", Functions(*TOOLS)), ("code", CodeTools(Functions(*TOOLS)))):
            right, prompt, completion, failed = 0, 0, 0, 0
            for task in tasks:
                conversation = Conversation(model, tools, limits=Limits(iterations=12, deadline=300))
                try:
                    reply = await conversation.send(task.question)
                except CallsmithError:
                    failed += 1
                    continue
                right += task.is_right(reply.text)
                prompt, completion = prompt + reply.usage.prompt, completion + reply.usage.completion
            print(
                f"{name}: {right} of {len(tasks)} right, {prompt} tokens read, {completion} written, {failed} failed", flush=True
            )
    finally:
        await model.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--tasks", type=int, default=30)
    arguments = parser.parse_args()
    asyncio.run(compare(arguments.model, arguments.tasks))
