"""Plots as SVG text: bars with intervals, and lines. Readable on paper and on screen, with nothing to install."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from callsmith.core.types.escaped_text import in_html

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f")  # told apart also by the colour-blind
_WIDTH, _LEFT, _RIGHT, _TOP, _BELOW = 860, 64, 16, 74, 58
_HEIGHT = 380


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with the ends of its interval."""

    value: float
    low: float | None = None
    high: float | None = None


def bars(title: str, groups: Sequence[str], series: Mapping[str, Sequence[Bar | None]], unit: str = "", top: float = 0.0) -> str:
    """Bars side by side: for each series one a group; None is left out. The axis begins at 0 and reaches `top` or the highest."""
    drawn = [bar for row in series.values() for bar in row if bar is not None]
    highest = top or max((bar.high if bar.high is not None else bar.value for bar in drawn), default=1.0)
    ticks = _ticks(0.0, highest)
    y = _scale(0.0, ticks[-1], _HEIGHT - _BELOW, _TOP)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    width = step * 0.8 / max(1, len(series))
    parts = [*_frame(title, list(series)), *_rows(ticks, y, unit)]
    for at, group in enumerate(groups):
        left = _LEFT + at * step + step * 0.1
        parts.append(_text(left + step * 0.4, _HEIGHT - _BELOW + 18, group, anchor="middle"))
        for nth, (name, row) in enumerate(series.items()):
            bar = row[at]
            if bar is None:
                continue
            x, height = left + nth * width, y(0.0) - y(bar.value)
            tooltip = f"{name}, {group}: {_number(bar.value)}{unit}"
            if bar.low is not None and bar.high is not None:
                tooltip += f" ({_number(bar.low)} to {_number(bar.high)})"
            parts.append(
                f'<rect x="{x:.1f}" y="{y(bar.value):.1f}" width="{width * 0.92:.1f}" height="{height:.1f}" '
                f'fill="{_colour(nth)}"><title>{in_html(tooltip)}</title></rect>'
            )
            middle = x + width * 0.46
            if bar.low is not None and bar.high is not None:
                parts.append(_line(middle, y(bar.low), middle, y(bar.high), "#222", 1.2))
                parts += [_line(middle - 3, y(end), middle + 3, y(end), "#222", 1.2) for end in (bar.low, bar.high)]
            if width > 24:
                parts.append(
                    _text(middle, y(bar.high if bar.high is not None else bar.value) - 4, _number(bar.value), 10, "middle")
                )
    return _svg(title, parts)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_label: str = "", unit: str = "") -> str:
    """Lines through points, one a series, with a mark at each."""
    points = [point for row in series.values() for point in row] or [(0.0, 0.0)]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    across = _scale(first, last if last > first else first + 1, _LEFT + 8, _WIDTH - _RIGHT - 8)
    ticks = _ticks(0.0, max(y for _, y in points) or 1.0)
    y = _scale(0.0, ticks[-1], _HEIGHT - _BELOW, _TOP)
    parts = [*_frame(title, list(series)), *_rows(ticks, y, unit)]
    for x in sorted({x for x, _ in points} if len({x for x, _ in points}) <= 12 else set(_ticks(first, last))):
        parts.append(_text(across(x), _HEIGHT - _BELOW + 18, _number(x), anchor="middle"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - _BELOW + 40, x_label, anchor="middle"))
    for nth, (name, row) in enumerate(series.items()):
        path = " ".join(f"{across(x):.1f},{y(value):.1f}" for x, value in row)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_colour(nth)}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{y(value):.1f}" r="3" fill="{_colour(nth)}">'
            f"<title>{in_html(f'{name}, {_number(x)}: {_number(value)}{unit}')}</title></circle>"
            for x, value in row
        ]
    return _svg(title, parts)


def _frame(title: str, names: Sequence[str]) -> list[str]:
    """The title, and which colour is what."""
    parts, x, y = [_text(_LEFT, 22, title, 15)], float(_LEFT), 42.0
    for nth, name in enumerate(names):
        length = 26 + 6.4 * len(name)
        if x + length > _WIDTH - _RIGHT and x > _LEFT:
            x, y = float(_LEFT), y + 16
        parts += [f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="11" height="11" fill="{_colour(nth)}"/>', _text(x + 15, y, name)]
        x += length
    return parts


def _rows(ticks: Sequence[float], y: Callable[[float], float], unit: str) -> list[str]:
    parts: list[str] = []
    for tick in ticks:
        parts.append(_line(_LEFT, y(tick), _WIDTH - _RIGHT, y(tick), "#bbb" if tick else "#222"))
        parts.append(_text(_LEFT - 6, y(tick) + 4, f"{_number(tick)}{unit}", anchor="end"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from one to the other."""
    rough = max(high - low, 1e-9) / 5
    size = 10.0 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    return [step * nth for nth in range(floor(low / step), ceil(high / step - 1e-9) + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _colour(nth: int) -> str:
    return _COLOURS[nth % len(_COLOURS)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def _text(x: float, y: float, text: str, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222">{in_html(text)}</text>'


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{in_html(title)}" '
        f'font-family="system-ui, sans-serif"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
        + "".join(parts)
        + "</svg>\n"
    )
