"""A calculator: arithmetic on numbers, walked as a tree. Nothing is executed, and no step of it can take long."""

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from callsmith.tools.functions import tool

Number: TypeAlias = int | float

MOST_CHARACTERS = 500
MOST_BITS = 4000  # of a whole number: about 1200 digits
_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}

# How people write what Python writes otherwise.
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "π": "pi"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%(?=\s*(?:$|[)*/+]|of\b))")
_TIMES = re.compile(r"(?<=[\d)])(?<!\b0)\s*x\s*(?=[\d(])|\bof\b")


@tool(idempotent=True)
def calculate(expression: str) -> str:
    """Compute an arithmetic expression. Use it for every calculation, also a simple one.

    Args:
        expression: Numbers with + - * / // % ** and brackets, and sqrt, log, sin and the like, for example 17 * 23 + 4.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ValueError(f"the expression is longer than {MOST_CHARACTERS} characters")
    try:
        value = _value(ast.parse(_as_python(expression), mode="eval").body)
        text = _written(value)
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{expression!r} is not an arithmetic expression, such as 17 * 23 + 4") from None
    except OverflowError:
        raise ValueError("the number is too large") from None
    except ZeroDivisionError:
        raise ValueError("nothing can be divided by zero") from None
    return text


def _as_python(expression: str) -> str:
    text = expression.translate(_SPELLINGS).strip().rstrip("=? ")
    if not re.search(r"[a-z]\w*\s*\(", text):  # in a function's brackets a comma separates arguments
        text = _THOUSANDS.sub("", text)
    return _TIMES.sub("*", _PERCENT.sub(r"(\1/100)", text)).strip()


def _written(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.15g}"


def _value(node: ast.AST) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _check(value)
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return _check(_compute(op, _value(left), _value(right)))
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="math"), attr=name), args=arguments, keywords=[]
        ) if name in _FUNCTIONS:
            return _call(name, [_value(argument) for argument in arguments])
        case _:
            known = ", ".join((*_FUNCTIONS, *_CONSTANTS))
            raise ValueError(f"only numbers, + - * / // % **, brackets and these are understood: {known}")


def _compute(op: ast.operator, left: Number, right: Number) -> Number:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Pow():
            return _power(left, right)
        case _:
            raise ValueError("only + - * / // % ** are understood between numbers")


def _power(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and abs(left) > 1 and left.bit_length() * right > 2 * MOST_BITS:
        raise OverflowError  # before it is computed
    power: Any = left**right
    if isinstance(power, complex):
        raise ValueError("the power is no real number")
    return power


def _call(name: str, arguments: list[Number]) -> Number:
    try:
        return _check(_FUNCTIONS[name](*arguments))
    except (TypeError, ValueError):
        numbers = ", ".join(map(_written, arguments)) or "no numbers"
        raise ValueError(f"{name} is not defined for {numbers}") from None


def _check(value: Number) -> Number:
    if value.bit_length() > MOST_BITS if isinstance(value, int) else not math.isfinite(value):
        raise OverflowError
    return value


def _round(value: Number, digits: Number = 0) -> Number:
    places = int(max(-400, min(400, digits)))  # with more nothing changes, but it would take long
    return round(value, places) if places else round(value)


def _factorial(value: Number) -> Number:
    if value > MOST_BITS // 8:
        raise OverflowError
    return math.factorial(_whole(value))


def _whole(value: Number) -> int:
    if value != int(value):
        raise ValueError(f"{value} is no whole number")
    return int(value)


def _root(value: Number) -> Number:
    root = math.isqrt(value) if isinstance(value, int) and value >= 0 else 0
    return root if root * root == value else math.sqrt(value)


_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "sqrt": _root,
    "cbrt": math.cbrt,
    "abs": lambda *values: abs(*values),
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "sum": lambda *values: sum(values),
    "pow": _power,
    "factorial": _factorial,
    "gcd": lambda *values: math.gcd(*map(_whole, values)),
    "exp": math.exp,
    "log": math.log,
    "ln": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "degrees": math.degrees,
    "radians": math.radians,
}
