"""Filter expressions of a receive, as filters of the kernel.

    expression ::= "*" | "" | tag { "||" tag }        FilterType TAG, or none given

Tags are compared as they are; in the kernel by hash first and by themselves after, so that two tags
of one hash are kept apart. SQL92 expressions are not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernel.filters import TagFilter

from .errors import Code, RocketmqError
from .settings import FILTER_TAGS_MAX

if TYPE_CHECKING:
    from .stubs import FilterExpression

UNSPECIFIED: Final = 0
TAG: Final = 1
"""`enum FilterType`."""


def filter_of(expression: FilterExpression) -> TagFilter | None:
    """The filter; None: every message. Raises ILLEGAL_FILTER_EXPRESSION."""
    if expression.type not in {UNSPECIFIED, TAG}:
        message = "only tags may be filtered by: SQL92 expressions are not served"
        raise RocketmqError(Code.ILLEGAL_FILTER_EXPRESSION, message)
    text = expression.expression.strip()
    if text in {"", "*"}:
        return None
    tags = [tag.strip() for tag in text.split("||")]
    if not all(tags) or any("|" in tag for tag in tags) or len(tags) > FILTER_TAGS_MAX:
        message = f"a tag expression is '*' or at most {FILTER_TAGS_MAX} tags parted by ||"
        raise RocketmqError(Code.ILLEGAL_FILTER_EXPRESSION, message)
    return None if "*" in tags else TagFilter(frozenset(tag.encode() for tag in tags))
