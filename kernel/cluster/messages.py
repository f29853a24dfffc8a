"""What is asked and answered about a cluster itself: methods of the section CLUSTER.

    of the leader of a group      TOWARDS, HAND_OVER, SPAN
    of the leader of group 0      ADMIT, DISMISS
    of any store                  REPORT

Every question may be put twice: it names what is wanted, not a step.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ..remote import calls
from ..remote.wire import WireError
from .records import Facts, Number

METHODS = calls.CLUSTER

TOWARDS, HAND_OVER, SPAN, ADMIT, DISMISS, REPORT = METHODS[:6]

TEXT_LENGTH_MAX = 1_024

Group = Annotated[int, Meta(ge=0, le=0xFFFF)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
_T = TypeVar("_T")


class Goal(StrEnum):
    """What a store is to be in a group."""

    LEARNER = "learner"
    """It has all that the leader has, and does not vote."""
    VOTER = "voter"
    GONE = "gone"


class Towards(msgspec.Struct, frozen=True, array_like=True):
    """Do the next step by which a store becomes what it is to be in a group. Answer: `Progress`."""

    group: Group
    node: Number
    goal: Goal
    replaces: int = 0
    """With VOTER: who leaves in the same step."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far it is."""

    done: bool
    what: Text
    """For people."""
    lag: int = 0
    """Entries that the store is behind."""


class HandOver(msgspec.Struct, frozen=True, array_like=True):
    """Hand a group's leadership to another voter; `to` 0: whoever is furthest. Answer: `Progress`
    that says to whom.
    """

    group: Group
    to: int = 0


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Answer: (first offset kept, next offset) of a queue; (0, 0): it is gone."""

    group: Group
    queue: Annotated[int, Meta(ge=0)]


class Admit(msgspec.Struct, frozen=True, array_like=True):
    """A store wants to belong to the cluster; with the same facts: again, at another address.
    Answer: `Progress`.
    """

    number: Number
    facts: Facts
    data_groups: int
    replaces: int = 0
    same_host: bool = False


class Dismiss(msgspec.Struct, frozen=True, array_like=True):
    """A store is to leave the cluster. Answer: `Progress`."""

    number: Number


class ReplicaReport(msgspec.Struct, frozen=True):
    """One member of a group, as its leader sees it."""

    node: int
    voter: bool
    match: int
    state: Text
    """`probe`, `replicate` or `snapshot`."""


class GroupReport(msgspec.Struct, frozen=True):
    """A group, as one store sees it."""

    group: int
    term: int
    leader: int
    """0: not known."""
    serves: bool
    """This store leads it, and serves it."""
    last: int
    commit: int
    applied: int
    voters: list[int]
    learners: list[int]
    joint: bool
    """A change of members is under way."""
    replicas: list[ReplicaReport]
    """Of the leader: the others."""


class Report(msgspec.Struct, frozen=True):
    """What a store says of itself. Answer of REPORT."""

    number: int
    store: Text
    version: Text
    uptime_ms: int
    draining: bool
    accepting: bool
    connected: list[int]
    errors: dict[int, Text]
    """By number of another store: why it is not connected."""
    problems: dict[int, Text]
    """Of the leader of group 0, by number: what keeps a store from joining or leaving."""
    groups: list[GroupReport]


def pack(message: msgspec.Struct) -> list[bytes]:
    """A question or an answer."""
    return [msgspec.msgpack.encode(message)]


def unpack(payload: bytes, kind: type[_T]) -> _T:
    """Inverse of `pack`. Raises WireError."""
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None
