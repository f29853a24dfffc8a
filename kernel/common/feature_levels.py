"""Features of the log: what a build writes to it, or applies differently, that builds before it do
not understand (ADR 26).

They have an order, and each has a number, its *level*. What is on is always the levels 1 to n, so
that one number says it: in a group's state, in a snapshot, in `ckpt`, in a hello. It only rises. A
build understands all levels up to LATEST, and whatever was written before there were any (level 0).

Whoever writes asks the state of the group that is written to (`GroupState.feature_level`), never
another's: the command that has raised that level stands before what is written then.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Code, KernelError


@dataclass(frozen=True, slots=True)
class LogFeature:
    """One step."""

    level: int
    name: str
    """For people, who turn it on by that."""
    brings: str
    """What is different once it is on: in a few words."""


REGISTER, STORED, REPLICAS, TENANTS, RESIZE, GROUPS, SPREAD, HASHES, GONE, WINDOWS = range(1, 11)

FEATURES = (
    LogFeature(
        REGISTER,
        "register",
        "several records of the cluster change together or not at all, and no version of a record "
        "comes again",
    ),
    LogFeature(
        STORED,
        "stored",
        "queues know how many bytes they hold, so that limits of stored bytes hold",
    ),
    LogFeature(
        REPLICAS,
        "replicas",
        "a store gives up its replica of a group that it does not belong to any more, and its room",
    ),
    LogFeature(
        TENANTS,
        "tenants",
        "tenants are made, changed and removed at run time",
    ),
    LogFeature(
        RESIZE,
        "resize",
        "a topic gets more queues, or fewer, while it is used",
    ),
    LogFeature(
        GROUPS,
        "groups",
        "data groups are added while the cluster runs",
    ),
    LogFeature(
        SPREAD,
        "spread",
        "a topic that is resized gets queues in other Raft groups than it had",
    ),
    LogFeature(
        HASHES,
        "hashes",
        "users sign in by the password hashes that another broker has made of their passwords",
    ),
    LogFeature(
        GONE,
        "gone",
        "a topic that was deleted does not come back by what was left of its resize",
    ),
    LogFeature(
        WINDOWS,
        "windows",
        "a topic with a window of deduplication gets queues in other Raft groups than it had",
    ),
)
"""All of them, by level. A new one goes to the end; none is ever removed or changes its number."""

LATEST = len(FEATURES)
"""What this build understands."""


def named(name: str) -> LogFeature | None:
    """The feature of a name."""
    return next((each for each in FEATURES if each.name == name), None)


def spelled(level: int) -> str:
    """A level for people: its number and, if this build knows it, its name."""
    known = FEATURES[level - 1] if 0 < level <= LATEST else None
    return f"{level} ({known.name})" if known is not None else str(level)


def is_off(level: int) -> KernelError:
    """What is said of something that takes a level."""
    return KernelError(
        Code.NOT_ALLOWED,
        f"level {spelled(level)} of the log's features is not on: see `weir cluster features`",
    )


def refusal(who: str, understands: int, level: int) -> str | None:
    """Why a process may not take part where a level is on; None: it understands that."""
    if understands >= level:
        return None
    return (
        f"{who} is of a build that understands the log's features up to level {understands}, and "
        f"level {spelled(level)} is on here: start it with a newer Weir"
    )


def newer(what: str, level: int, understands: int) -> str:
    """What is said of a file that holds what this build does not understand."""
    return (
        f"{what} has features up to level {level} on, this Weir understands {understands}: start a "
        "newer one"
    )
