"""NextToken: where a listing goes on.

    base64url( "1:" + the last name given )

Names are listed in order, so that a page is right whatever was created or deleted in between.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from typing import TYPE_CHECKING

from .. import error_codes as errors
from ..error_codes import SqsError

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS_MAX = 1000
"""Most results of one answer, and all of them without MaxResults (ListQueues)."""
_TOKEN_CHARS_MAX = 256
"""A name of 80 characters takes 110."""
_PREFIX = "1:"


def page(
    ordered_names: Sequence[str], max_results: int | None, next_token: str | None
) -> tuple[Sequence[str], str | None]:
    """One page of names and the token of the next, None after the last or without max_results.

    Raises InvalidParameterValue for a token that is not ours, or max_results outside 1..1000.
    """
    if max_results is not None and not 1 <= max_results <= RESULTS_MAX:
        raise errors.invalid_parameter(
            max_results, "MaxResults", f"Must be between 1 and {RESULTS_MAX}, if provided."
        )
    start = bisect_right(ordered_names, _decode(next_token)) if next_token else 0
    end = start + (max_results or RESULTS_MAX)
    names = ordered_names[start:end]
    goes_on = max_results is not None and end < len(ordered_names)
    return names, _encode(names[-1]) if goes_on else None


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode((_PREFIX + name).encode()).decode()


def _decode(token: str) -> str:
    try:
        if len(token) <= _TOKEN_CHARS_MAX:
            text = base64.urlsafe_b64decode(token).decode()
            if text.startswith(_PREFIX):
                return text.removeprefix(_PREFIX)
    except ValueError:
        pass
    raise SqsError(errors.INVALID_PARAMETER_VALUE, "Invalid or expired next token.")
