"""Three tools, and everything that happens while they are used: weather, a calculator, a search. Ask something of your own:

python examples/tool_calling.py qwen2.5-coder-1.5b "How much is 17 * 23?"
"""

import ast
import asyncio
import operator
import sys

from callsmith import Functions, Text, ToolFinished, ToolStarted, open_model, run, tool

PAGES = {"Eiffel Tower": "330 metres high, in Paris.", "Etna": "A volcano on Sicily, 3,357 metres high."}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@tool
def get_weather(city: str) -> str:
    """The weather in a city right now."""
    return f"In {city} it is cloudy, 15 °C."


@tool
def calculate(expression: str) -> float:
    """Work out an expression of numbers, + - * / and brackets."""
    return value(ast.parse(expression, mode="eval").body)


def value(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(ast.USub(), operand):
            return -value(operand)
    raise ValueError("only numbers, + - * / and brackets are understood")


@tool
def search(query: str) -> list[str]:
    """Search a few facts by words."""
    words = query.lower().split()
    return [f"{title}: {text}" for title, text in PAGES.items() if any(word in f"{title} {text}".lower() for word in words)]


async def main(model: str = "qwen2.5-coder-1.5b", question: str = "How much is 17 * 23?") -> None:
    async for event in run(open_model(model), Functions(get_weather, calculate, search), question):
        match event:
            case Text(text):
                print(text, end="", flush=True)
            case ToolStarted(call):
                print(f"[{call.name} {call.text}]")
            case ToolFinished(result):
                print(f"[→ {result.text}]")
    print()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
