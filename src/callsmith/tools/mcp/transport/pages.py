"""Lists that an MCP server gives page by page, within bounds."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

MOST_PAGES = 200  # of a list: one whose cursors go in circles ends


class Page(Protocol):
    """One page of a list."""

    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)
E = TypeVar("E")


def too_many(what: str, most: int) -> str:
    """That a list is longer than what is read of it."""
    limit = " (max_tools)" if what == "tools" else ""
    return f"it lists more than {most:,} {what}{limit}; the others are not offered"


async def list_pages(
    what: str, most: int, fetch: Callable[[str | None], Awaitable[P]], entries: Callable[[P], Sequence[E]]
) -> tuple[list[E], list[str]]:
    """The entries of all pages, and notices of what was not read. `fetch` has the page of a cursor."""
    listed, notices = list[E](), list[str]()
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await fetch(cursor)
        listed += entries(page)
        if not page.next_cursor or page.next_cursor == cursor:  # some servers end with an empty one
            break
        if len(listed) > most:
            notices.append(too_many(what, most))
            break
        cursor = page.next_cursor
    else:
        notices.append(f"its list of {what} has more than {MOST_PAGES} pages; the others were not read")
    return listed[:most], notices
