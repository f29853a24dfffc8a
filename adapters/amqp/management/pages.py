"""Parts of long lists: `page`, `page_size`, `name`, `use_regex`, `pagination`, `sort`,
`sort_reverse`, `columns`, as RabbitMQ reads them.

A name may be looked for by a regular expression. Ours are those whose worst case is bounded: at
most REPEATS_MAX of `*`, `+` and `{}`, none behind a group, none with another inside, no look-around
and no back-reference; others are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from adapters.amqp.management.requests import Refused, bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
"""As RabbitMQ has it."""

ROWS_MAX: Final = 10_000
"""Of a list without pages: some megabytes. More are asked for by page."""

REPEATS_MAX: Final = 2
"""With names of 255 bytes: some milliseconds each, at the very worst."""
EXPRESSION_MAX: Final = 200

_UNBOUNDED: Final = frozenset("*+{")


class Page:
    """What part of a list is asked for."""

    def __init__(self, query: Mapping[str, str]) -> None:
        """Raises Refused."""
        self._query = query
        self._is_paged = "page" in query
        self._number = _number(query, "page", 1, None)
        self._size = _number(query, "page_size", PAGE_SIZE, PAGE_SIZE_MAX)
        self.sort = query.get("sort", "")
        self._columns = [each for each in query.get("columns", "").split(",") if each]
        self.wanted = _matcher(query)

    def cut(self, rows: Sequence[Any], total: int) -> tuple[Sequence[Any], Callable[..., object]]:
        """The rows to show, and what makes the answer of them. `total`: without the filter.
        Raises Refused.
        """
        if not self._is_paged:
            if len(rows) > ROWS_MAX:
                raise bad_request(f"there are {len(rows)}: ask for them by page")
            return rows, lambda shown: [self._shown(each) for each in shown]
        first = (self._number - 1) * self._size
        if first >= len(rows) and self._number > 1:
            size, has = self._size, len(rows)
            reason = f"Page out of range, page: {self._number} page size: {size}, len: {has}"
            raise Refused(400, "page_out_of_range", reason)
        some = rows[first : first + self._size]

        def made(shown: Sequence[dict[str, Any]]) -> object:
            return {
                "filtered_count": len(rows),
                "item_count": len(shown),
                "items": [self._shown(each) for each in shown],
                "page": self._number,
                "page_count": max(1, -(-len(rows) // self._size)),
                "page_size": self._size,
                "total_count": total,
            }

        return some, made

    def sorted_by(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows in the order asked for. Raises Refused."""
        if not self.sort:
            return rows
        path = self.sort.split(".")
        try:
            rows = sorted(rows, key=lambda each: _at(each, path))
        except TypeError:
            raise bad_request(f"sort={self.sort} is no column") from None
        return rows[::-1] if self._query.get("sort_reverse") == "true" else rows

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        if not self._columns:
            return row
        wanted = {each.partition(".")[0] for each in self._columns}
        return {name: value for name, value in row.items() if name in wanted}


def _at(row: object, path: Sequence[str]) -> Any:  # noqa: ANN401 - what JSON has
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return "" if row is None else row


def _number(query: Mapping[str, str], name: str, default: int, most: int | None) -> int:
    text = query.get(name, str(default))
    fine = text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0
    if not fine or (most is not None and int(text) > most):
        reason = f"Invalid pagination parameters: {name} {text}"
        raise Refused(400, "invalid_pagination_parameters", reason)
    return int(text)


def _matcher(query: Mapping[str, str]) -> Callable[[str], bool]:
    """Which names are asked for. Raises Refused."""
    name = query.get("name", "")
    if not name:
        return lambda _: True
    if query.get("use_regex") != "true":
        lower = name.lower()
        return lambda each: lower in each.lower()
    fault = _fault(name)
    if fault is not None:
        raise bad_request(f"the expression {name!r} is not looked for here: {fault}")
    try:
        compiled = re.compile(name, re.IGNORECASE)
    except re.error as error:
        raise bad_request(f"{name!r} is no regular expression: {error}") from None
    return lambda each: compiled.search(each) is not None


def _fault(expression: str) -> str | None:
    """Why an expression could take too long; None: it cannot."""
    if len(expression) > EXPRESSION_MAX:
        return f"it has more than {EXPRESSION_MAX} characters"
    repeats, place, in_class = 0, 0, False
    while place < len(expression):
        here, before = expression[place], expression[place - 1 : place]
        if here == "\\":
            if expression[place + 1 : place + 2].isdigit():
                return "it refers back to a group"
            place += 2
            if expression[place : place + 1] in _UNBOUNDED:
                repeats += 1
                place += 1
            continue
        if in_class:
            in_class = here != "]"
        elif here == "[":
            in_class = True
        elif expression.startswith("(?", place) and not expression.startswith("(?:", place):
            return "it looks around, or sets a flag"
        elif here in _UNBOUNDED:
            if before == ")":
                return "it repeats a group"
            repeats += 1
        place += 1
    return f"it repeats more than {REPEATS_MAX} things" if repeats > REPEATS_MAX else None
