"""Small tables in plain text."""

from collections.abc import Iterable, Sequence


def show(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(head), *(len(row[at]) for row in cells)) for at, head in enumerate(heads)]
    print(f"\n{title}")
    for row in (list(heads), *cells):
        first, *rest = (
            text.ljust(width) if at == 0 else text.rjust(width) for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join((f"  {first}", *rest)))


def goal(what: str, value: float, most: float) -> None:
    """Print whether a goal was kept."""
    print(f"  goal: {what} at most {most:g}; {value:,.2f}: {'kept' if value <= most else 'MISSED'}")


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
