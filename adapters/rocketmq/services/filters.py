"""Filter expressions of a receive, as filters of the kernel.

    expression ::= "*" | "" | tag { "||" tag }        FilterType TAG, or none given
    expression ::= SQL92, in the dialect of `kernel.api.sql`            FilterType SQL

Tags are compared as they are; in the kernel by hash first and by themselves after, so that two tags
of one hash are kept apart. What a consumer's filter leaves out counts as consumed by its group, as
in the reference: consumers of one group filter alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kernel.api.filters import SqlFilter, TagFilter, sql_filter
from kernel.common.errors import KernelError

from ..errors import Code, RocketmqError
from ..settings import FILTER_TAGS_MAX, FILTERS_KEPT_MAX

if TYPE_CHECKING:
    from ..codec.stubs import FilterExpression

UNSPECIFIED: Final = 0
TAG: Final = 1
SQL: Final = 2
"""`enum FilterType`."""


def filter_of(expression: FilterExpression) -> TagFilter | SqlFilter | None:
    """The filter; None: every message. Raises ILLEGAL_FILTER_EXPRESSION."""
    if expression.type == SQL:
        return _sql(expression.expression)
    if expression.type not in {UNSPECIFIED, TAG}:
        message = f"there is no filter type {expression.type}"
        raise RocketmqError(Code.ILLEGAL_FILTER_EXPRESSION, message)
    text = expression.expression.strip()
    if text in {"", "*"}:
        return None
    tags = [tag.strip() for tag in text.split("||")]
    if not all(tags) or any("|" in tag for tag in tags) or len(tags) > FILTER_TAGS_MAX:
        message = f"a tag expression is '*' or at most {FILTER_TAGS_MAX} tags parted by ||"
        raise RocketmqError(Code.ILLEGAL_FILTER_EXPRESSION, message)
    return None if "*" in tags else TagFilter(frozenset(tag.encode() for tag in tags))


@lru_cache(FILTERS_KEPT_MAX)
def _sql(text: str) -> SqlFilter:
    """Compiled once: a consumer sends its expression with every receive."""
    try:
        return sql_filter(text)
    except KernelError as error:
        raise RocketmqError(Code.ILLEGAL_FILTER_EXPRESSION, error.message) from None
