"""The sandbox in which chat templates run: a small language, in which everything that is done is paid for.

A template is a program out of a file that anybody may have made, and it runs wherever a prompt is made. Each block of statements
pays for what is written in it whenever it runs; what depends on the size of values is paid for where it is done: operators,
comparisons, filters, tests and calls (`offered`). Nothing is computed while a template is compiled.
"""

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, Final, NoReturn, cast

from jinja2 import TemplateSyntaxError, Undefined, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from callsmith.formats.prompt import meter, offered

LONGEST_SOURCE: Final = 64 * 1024  # characters; the longest template in use has 17 thousand
MOST_NODES: Final = 6_000  # the largest one in use has 2 thousand
_CALL_STEPS: Final = 16
_OWN_ARGUMENTS: Final = frozenset({"_loop_vars", "_block_vars"})  # jinja2's, of every call
# Filters of ours, by names that no template can write.
_LOOP, _PAID, _ALL, _KEY, _JOIN, _IN, _PRINT, _SPREAD = "loop ", "paid ", "all ", "key ", "join ", "in ", "print ", "spread "


def _concat(pieces: Iterable[str]) -> str:
    """The output of a template, a macro or a block."""
    parts = list(pieces)
    meter.reserve(4 * sum(map(len, parts)))
    return meter.pay_for("".join(parts))


class _Code(CodeGenerator):
    """Python for a template in which each block pays when it is entered, and nothing is worked out ahead."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        body = list(nodes)
        if frame.rootlevel:
            self.writeline("left = environment.left()")
        self.writeline(f"left[0] -= {1 + sum(map(_steps, body))}")
        self.writeline("if left[0] < 0: environment.spend(0)")
        super().blockvisit(body, frame)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData | nodes.Const):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


def _steps(node: nodes.Node) -> int:
    """The nodes of a statement, without those of the blocks in it, which pay for themselves."""
    own = 4 if isinstance(node, _SLOWER) else 1
    return own + sum(map(_steps, node.iter_child_nodes(exclude=("body", "else_"))))


def _owner(function: Any) -> Any:
    """That whose method it is."""
    return getattr(getattr(function, "__wrapped__", function), "__self__", None)  # jinja2 wraps `format`


class Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox. Lists can be changed, since some templates use one as a queue; all input is copied."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    code_generator_class = _Code
    concat = staticmethod(_concat)
    spend, left = staticmethod(meter.spend), staticmethod(meter.left)

    def __init__(self, extensions: list[type[Extension]], filters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, optimized=False)
        own = {
            _LOOP: offered.counted,
            _PAID: meter.pay_for,
            _ALL: meter.gone_over,
            _KEY: offered.key,
            _JOIN: offered.joined,
            _IN: offered.is_in,
            _PRINT: offered.printed,
            _SPREAD: offered.spread,
        }
        self.filters = {**offered.offer_filters(filters), **own}
        self.tests = offered.offer_tests()
        self.globals = dict(offered.FUNCTIONS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        kind = cast(object, type(__obj))
        if kind is Macro:
            meter.spend(_CALL_STEPS + len(args) + len(kwargs))
            return super().call(__context, __obj, *args, **kwargs)
        if isinstance(__obj, Undefined):
            return super().call(__context, __obj)
        keywords = {name: value for name, value in kwargs.items() if name not in _OWN_ARGUMENTS}
        meter.spend(_CALL_STEPS)
        if (owner := _owner(__obj)) is not None:
            offered.pay_for_method(owner, __obj.__name__, args, keywords)
            result = __obj(*args, **keywords)
            return meter.pay_for(result) if isinstance(owner, str) else result
        if kind is not FunctionType:
            raise SecurityError(f"chat templates may not call a {type(__obj).__name__}")
        return __obj(*args, **keywords)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator != "+" or type(left) is not str or type(right) is not str:
            offered.pay_for_operator(operator, left, right)
        return meter.pay_for(self.binop_table[operator](left, right))

    def handle_exception(self, source: str | None = None) -> NoReturn:
        raise  # as it is: jinja2 would compile a line of Python for each call that is open

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > LONGEST_SOURCE:
            raise TemplateSyntaxError(f"it is longer than {LONGEST_SOURCE:,} characters", 1)
        return cast(nodes.Template, _Paying().visit(super()._parse(source, name, filename)))


_SLOWER: Final = (nodes.Call, nodes.Dict, nodes.Filter, nodes.Getattr, nodes.Getitem, nodes.List, nodes.Test, nodes.Tuple)
_REFUSED: Final = (nodes.Block, nodes.Extends, nodes.FromImport, nodes.Import, nodes.Include, nodes.ScopedEvalContextModifier)


class _Paying(NodeTransformer):
    """Has everything paid for that is done to values without a call."""

    def __init__(self) -> None:
        self._seen = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self._seen += 1
        if self._seen > MOST_NODES:
            raise TemplateSyntaxError(f"it has more than {MOST_NODES:,} parts", node.lineno)
        if isinstance(node, _REFUSED):
            raise TemplateSyntaxError(f"chat templates are not offered {type(node).__name__.lower()}", node.lineno)
        self.generic_visit(node)
        if isinstance(node, nodes.Call | nodes.Filter | nodes.Test):
            node.dyn_args = node.dyn_args and _filter(node.dyn_args, _SPREAD)
            node.dyn_kwargs = node.dyn_kwargs and _filter(node.dyn_kwargs, _SPREAD)
        paying = getattr(self, f"visit_{type(node).__name__}", None)
        return paying(node) if paying else node

    def visit_Const(self, node: nodes.Const) -> nodes.Expr:
        if type(node.value) is int and node.value.bit_length() > meter.MOST_BITS:
            raise TemplateSyntaxError(f"a number has more than {meter.MOST_BITS} bits", node.lineno)
        return node

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.recursive:
            raise TemplateSyntaxError("chat templates are not offered recursive loops", node.lineno)
        if node.test:
            node.iter = _filter(cast(nodes.Expr, node.iter), _LOOP, nodes.Const(1 + _steps(node.test), lineno=node.lineno))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:
        operands = [node.expr, *(op.expr for op in node.ops)]
        among = {op.op for op in node.ops} & {"in", "notin"}
        if not among:
            if len(operands) > 2 or not any(_is_short(operand) for operand in operands):
                node.expr = _filter(node.expr, _ALL)
                for op in node.ops:
                    op.expr = _filter(op.expr, _ALL)
            return node
        if len(operands) > 2:
            raise TemplateSyntaxError("chat templates are not offered chains of `in`", node.lineno)
        if isinstance(operands[1], nodes.List | nodes.Tuple) and all(map(_is_short, operands[1].items)):
            return node
        contains = _filter(operands[0], _IN, operands[1])
        return nodes.Not(contains, lineno=node.lineno) if "notin" in among else contains

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        return _filter(nodes.List(node.nodes, lineno=node.lineno), _JOIN)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        if isinstance(node.arg, nodes.Slice):
            return _filter(node, _PAID)
        if not isinstance(node.arg, nodes.Const):
            node.arg = _filter(node.arg, _ALL)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        node.nodes = [item if _is_text(item) else _filter(item, _PRINT) for item in node.nodes]
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:
        if not isinstance(node.key, nodes.Const):
            node.key = _filter(node.key, _KEY)
        return node


def _is_short(node: nodes.Expr) -> bool:
    """Whether a comparison with it takes next to no time."""
    return isinstance(node, nodes.Const) and len(str(node.value)) < 256


def _is_text(node: nodes.Expr) -> bool:
    """Whether it is a text, as far as can be seen."""
    if isinstance(node, nodes.Add):
        return _is_text(node.left) or _is_text(node.right)
    return (isinstance(node, nodes.Filter) and node.name in ("tojson", "trim", "join", _JOIN)) or isinstance(
        node, nodes.TemplateData | nodes.Const
    )


def _filter(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
