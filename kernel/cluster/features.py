"""What there is to say of the log's features, and whether one can be turned on. Pure; for the
leader of group 0 (ADR 26).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..common.errors import Code, KernelError
from ..common.feature_levels import FEATURES, LATEST
from .messages import FeatureStatus


def status(on: int, behind: Iterable[int] = (), lacks: Iterable[str] = ()) -> list[FeatureStatus]:
    """Every feature that this build knows. `on`: the level in group 0; `behind`: groups that have
    not got it yet; `lacks`: what keeps the highest from being turned on.
    """
    groups = ", ".join(map(str, sorted(behind)))
    follows = f"group {groups} follows" if groups else ""
    waits = "; ".join(lacks)
    return [
        FeatureStatus(
            each.level,
            each.name,
            each.brings,
            each.level <= on,
            follows if each.level <= on else waits,
        )
        for each in FEATURES
    ]


def lacking(level: int, understood: Mapping[str, int], silent: Iterable[str]) -> list[str]:
    """Why a level cannot be turned on now; empty if it can. `understood`: what each process says;
    `silent`: stores that do not answer, so that nobody knows.
    """
    found = [f"{who} does not answer, so that nobody knows what it understands" for who in silent]
    found += [
        f"{who} understands level {knows} only"
        for who, knows in understood.items()
        if knows < level
    ]
    return found


def check(level: int, understands: int, lacks: Iterable[str]) -> None:
    """Raise KernelError unless a level can be turned on: INVALID_ARGUMENT, UNAVAILABLE."""
    if not 0 < level <= min(LATEST, understands):
        message = f"there is no level {level}: this build understands 1 to {understands}"
        raise KernelError(Code.INVALID_ARGUMENT, message)
    reasons = "; ".join(lacks)
    if reasons:
        raise KernelError(Code.UNAVAILABLE, f"level {level} stays off: {reasons}")
