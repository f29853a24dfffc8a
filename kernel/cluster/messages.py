"""What is asked and answered about a cluster itself: methods of the section CLUSTER.

    of the leader of a group      TOWARDS, HAND_OVER
    of the leader of group 0      ADMIT, DISMISS, HEARTBEAT_REPORT, DRAIN, GATEWAYS, KEEP, FEATURES,
                                  MOVE, SET_REPLICAS, ADD_GROUPS
    of any store                  REPORT; FLUSH: write down what is counted for the bill; LEAVE;
                                  CUT: of all stores, for a backup (`cluster_cut`)

Every question may be put twice: it names what is wanted, not a step.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ..common.errors import UNDECODABLE
from ..remote.leader_calls import call_numbers as calls
from ..remote.leader_calls.call_wire import WireError
from .records import LABEL_LENGTH_MAX, Facts, Number

METHODS = calls.CLUSTER

TOWARDS, HAND_OVER, ADMIT, DISMISS, REPORT, FLUSH, HEARTBEAT_REPORT, DRAIN, GATEWAYS, KEEP = (
    METHODS[:10]
)
FEATURES, LEAVE, MOVE, SET_REPLICAS, ADD_GROUPS, CUT = METHODS[10:16]

TEXT_LENGTH_MAX = 1_024

GATEWAY_NAME_LENGTH_MAX = 64
KINDS_MAX = 16
LISTENERS_MAX = 64
TASKS_MAX = 256
"""Tasks of a gateway that are told: those with the most messages."""
STAYING_MAX = 32
"""Clients that come straight back: a few of each kind are named."""
CLIENT_NAME_LENGTH_MAX = 128
LIMITS_TOLD_MAX = 512
"""Limits of which a gateway tells what it uses: those that are nearest to being used up. Of others
it may use as much as any other gateway, so that no limit is exceeded because of that."""
UNLIKE_MAX = 16
"""Gateways of other settings that are named: whoever has more of them begins with these."""

Group = Annotated[int, Meta(ge=0, le=0xFFFF)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
_T = TypeVar("_T")


class Goal(StrEnum):
    """What a store is to be in a group."""

    LEARNER = "learner"
    """It has all that the leader has, and does not vote."""
    VOTER = "voter"
    GONE = "gone"
    NO_LEARNER = "no learner"
    """It is not one any more; a voter stays. Asked only where `replicas` is on."""
    OBSERVER = "observer"
    """It votes no more, and goes on learning. Asked only where `replicas` is on."""


class Towards(msgspec.Struct, frozen=True, array_like=True):
    """Do the next step by which a store becomes what it is to be in a group.

    Answer: `StepProgress`.
    """

    group: Group
    node: Number
    goal: Goal
    replaces: int = 0
    """With VOTER: who leaves in the same step."""


class StepProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a membership step is."""

    done: bool
    what: Text
    """For people."""
    lag: int = 0
    """Entries that the store is behind."""


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A group is to have a replica in a store, or not any more (`replica_moves`). Answer:
    `StepProgress`.
    """

    group: Group
    to: int = 0
    gone: int = 0
    cancel: bool = False
    """What is under way for the group ends, if it still can."""


class SetReplicas(msgspec.Struct, frozen=True, array_like=True):
    """Each data group is to be in so many stores (`replica_count`), or the copies that a store
    takes in are to have so many bytes a second (`copy_rate`): not both at once, for an older build
    that leads reads the number alone. Answer: `StepProgress`.
    """

    count: int
    """0: as it is; an older build refuses that."""
    rate: int | None = None
    """None: as it is; 0: no bound; -1: what each store's settings say."""


class AddGroups(msgspec.Struct, frozen=True, array_like=True):
    """So many data groups are to have been added since the cluster began (`added_groups`). Answer:
    `StepProgress`.
    """

    total: int


class Leave(msgspec.Struct, frozen=True, array_like=True):
    """The store that is asked is no member of a group any more (`leaving.LeaveGroup`). Answer, once
    it has let go of it: `StepProgress`.
    """

    group: Group
    term: calls.U64
    index: calls.U64
    level: int


class CutStep(StrEnum):
    """What a store does next for a cut of the cluster, in this order. All stores have done one
    step before any is asked for the next.
    """

    PREPARE = "prepare"
    """Have housekeeping rest (`PinKeeper.prepare`)."""
    HOLD = "hold"
    """Apply nothing from now on (`Holding`)."""
    TAKE = "take"
    """Note what is on the disk (`PinKeeper.take`)."""
    RELEASE = "release"
    """Go on."""
    KEEP = "keep"
    """All stores have held until then: keep the files."""
    DROP = "drop"
    """It does not count; may be asked at any time."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """One step of a cut. Answer: `CutTold`."""

    cut: calls.U64
    """64 bits that whoever asks has drawn: no other cut has them."""
    step: CutStep
    stores: list[Number] = []
    """With HOLD: who is asked."""


class CutMembers(msgspec.Struct, frozen=True, array_like=True):
    """Who votes in a group."""

    group: Group
    voters: list[int]
    outgoing: list[int]
    """While members change: those who vote as well."""


class CutTold(msgspec.Struct, frozen=True, array_like=True):
    """How a step went."""

    held: bool = True
    """Of RELEASE: whether nothing was applied since HOLD."""
    register: list[int] = []
    """Of HOLD, as the next: stores that belong to the cluster, as this one has applied."""
    groups: list[CutMembers] = []
    """Those that it is a member of."""


class HandOver(msgspec.Struct, frozen=True, array_like=True):
    """Hand a group's leadership to another voter; `to` 0: whoever is furthest. Answer:
    `StepProgress` that says to whom.
    """

    group: Group
    to: int = 0


class Keep(msgspec.Struct, frozen=True, array_like=True):
    """These groups keep the leaders that they have (`kept_leaders`), or (none named) no group does
    any more. Answer: `StepProgress`.
    """

    groups: list[Group]


class Features(msgspec.Struct, frozen=True, array_like=True):
    """Turn on the log's features up to a level, 0: none; and tell of all. Answer: `FeatureList`."""

    level: int = 0


class FeatureStatus(msgspec.Struct, frozen=True):
    """One feature of the log, for people."""

    level: int
    name: Text
    brings: Text
    on: bool
    waits: str
    """What keeps it from being turned on, or where it is not on yet."""


class FeatureList(msgspec.Struct, frozen=True):
    """Answer of FEATURES."""

    features: list[FeatureStatus]


class Admit(msgspec.Struct, frozen=True, array_like=True):
    """A store wants to belong to the cluster; with the same facts: again, at another address.
    Answer: `StepProgress`.
    """

    number: Number
    facts: Facts
    data_groups: int
    replaces: int = 0
    same_host: bool = False


class Dismiss(msgspec.Struct, frozen=True, array_like=True):
    """A store is to leave the cluster. Answer: `StepProgress`."""

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
    written: int = 0
    """This and the two below: see `ReplicaLoad`. An older build says nothing."""
    sent: int = 0
    live: int = 0


class SnapshotReport(msgspec.Struct, frozen=True):
    """How far the snapshot of a group is that a store is sent, to begin with or to catch up."""

    group: int
    sender: int
    """Number of the store that sends it."""
    waits: bool
    """For its turn: a store takes in one at a time."""
    file_bytes: int
    file_bytes_total: int
    """Of the snapshot's file, which comes first; 0: not known yet."""
    entries: int
    entries_total: int
    """Entries that the file refers to; 0: not known yet, or none."""
    bytes: int
    """Of the file and of entries that have come."""
    rate: int
    """Bytes a second of late."""
    seconds: int
    """Since the snapshot was offered. A later one that takes its place begins anew."""
    rate_max: int = 0
    """Bytes a second that it may take; 0: no bound, or an older build."""


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
    """Those that it is a member of."""
    left: list[int] = []
    """Groups of which it has nothing."""
    moving: dict[int, Text] = {}
    """Of the leader of group 0, by group: how far the moves of replicas are."""
    heals: list[int] = []
    """Groups whose replica here has lost something and is not healed yet."""
    room: int = 0
    """Bytes of messages that it could hold beyond what it does; 0: none, or an older build."""
    replicas: int = 0
    """This and the two below, of the leader of group 0: how many each data group is to have."""
    short: dict[int, Text] = {}
    """By group: what it lacks."""
    unmended: list[Text] = []
    """What no move mends."""
    added: dict[int, Text] = {}
    """Of the leader of group 0: groups that were added, by number, and what each waits for until
    it takes queues; empty: nothing."""
    copy_rate: int | None = None
    """Of the leader of group 0: bytes a second that copies may take of each store, 0: no bound;
    None: what each store's settings say, or an older build."""
    receiving: list[SnapshotReport] = []
    """Snapshots of groups that other stores send it."""
    copy_setting: int | None = None
    """Bytes a second that copies may take of it by its settings, 0: no bound; None: it takes none,
    or is of an older build."""


class Role(StrEnum):
    """What a client does with a topic."""

    PRODUCE = "produce"
    CONSUME = "consume"


GatewayName = Annotated[str, Meta(min_length=1, max_length=GATEWAY_NAME_LENGTH_MAX)]
Short = Annotated[str, Meta(max_length=LABEL_LENGTH_MAX)]
Count = Annotated[int, Meta(ge=0)]


class Task(msgspec.Struct, frozen=True, array_like=True):
    """Clients of one kind that produce to a topic, or consume from it, at one gateway."""

    role: Role
    tenant: Text
    topic: Text
    group: Text
    """Of consumers."""
    kind: Short
    """What they speak; empty: all kinds together."""
    amount: Count
    """Of producing: messages since the last report; of consuming: consumers now."""


class Staying(msgspec.Struct, frozen=True, array_like=True):
    """A client that came straight back when it was asked to use another gateway."""

    kind: Short
    who: Annotated[str, Meta(max_length=CLIENT_NAME_LENGTH_MAX)]
    times: Count
    """How often it did."""


class LimitUse(msgspec.Struct, frozen=True, array_like=True):
    """What one gateway uses of a limit (`limit_shares`)."""

    scope: Short
    tenant: Text
    name: Text
    kind: Short
    wanted: Annotated[float, Meta(ge=0.0, le=1.0)]
    """Of a limit a second: which part of it."""
    held: Count = 0
    """Of a limit that is a number: how many there are."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Which limit it is."""
        return self.scope, self.tenant, self.name, self.kind


class LimitShare(msgspec.Struct, frozen=True, array_like=True):
    """What one gateway may use of a limit."""

    scope: Short
    tenant: Text
    name: Text
    kind: Short
    share: Annotated[float, Meta(gt=0.0, le=1.0)]
    elsewhere: Count = 0
    """How many there are at other gateways."""


class HeartbeatReport(msgspec.Struct, frozen=True, array_like=True):
    """A gateway is there, and tells whom it serves. Answer: `Orders`."""

    name: GatewayName
    process: Short
    """Id of the process: new at each start."""
    label: Short
    """What fails together with it."""
    version: Short
    listeners: Annotated[dict[Short, Short], Meta(max_length=LISTENERS_MAX)]
    """`kind.listener` to the `host:port` by which clients reach it."""
    clients: Annotated[dict[Short, Count], Meta(max_length=KINDS_MAX)]
    """Connections by kind."""
    traffic: Count
    """Bytes a second, in and out, lately."""
    moved: Count
    """Clients that it has asked to go elsewhere."""
    tasks: Annotated[list[Task], Meta(max_length=TASKS_MAX)]
    settings: Short = ""
    """Stands for the settings that all gateways are to have alike: equal if they are. Empty: an
    older gateway, which is compared with none.
    """
    staying: Annotated[list[Staying], Meta(max_length=STAYING_MAX)] = []
    """Some of the clients that come straight back."""
    limits: Annotated[list[LimitUse], Meta(max_length=LIMITS_TOLD_MAX)] = []
    """What it uses of limits."""


class ConsumingReport(msgspec.Struct, frozen=True, array_like=True):
    """What some clients consume."""

    tenant: Text
    topic: Text
    group: Text


class ClientMove(msgspec.Struct, frozen=True, array_like=True):
    """So many clients of a kind are to go to another gateway."""

    kind: Short
    clients: Count
    """With `consuming`: so many consumers, together with the clients that have them."""
    process: Short
    """Of that gateway."""
    listeners: dict[Short, Short]
    """Its; see `HeartbeatReport`."""
    consuming: ConsumingReport | None = None
    """Only clients that consume this."""


class Orders(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway is to do. Answer of HEARTBEAT_REPORT."""

    draining: bool
    """It is to have no clients."""
    moves: list[ClientMove]
    others: list[Short]
    """Processes of the other gateways that take clients: who was sent to one that is not among
    them may come back.
    """
    unlike: Annotated[list[GatewayName], Meta(max_length=UNLIKE_MAX)] = []
    """Gateways whose settings are not this one's: the first UNLIKE_MAX of them by name."""
    unlike_count: Count = 0
    """How many there are."""
    shares: list[LimitShare] = []
    """What it may use of the limits that it has told of; and numbers that others hold."""
    gateways: Count = 0
    """How many report, itself among them; 0: an older manager, which grants nothing."""


class Drain(msgspec.Struct, frozen=True, array_like=True):
    """A gateway is to have no clients, or (`undo`) may have some again. Answer: `StepProgress`."""

    name: GatewayName
    undo: bool = False


class TaskStatus(msgspec.Struct, frozen=True):
    """See `Task`."""

    role: str
    tenant: str
    topic: str
    group: str
    kind: str
    amount: int


class StayingStatus(msgspec.Struct, frozen=True):
    """See `Staying`."""

    kind: str
    who: str
    times: int


class GatewayStatus(msgspec.Struct, frozen=True):
    """One gateway, for people."""

    name: str
    stage: str
    """`serving`, `draining` or `drained`."""
    load: str
    """`calm`, `high` or `resting` (some of its clients have just been asked to move)."""
    label: str
    version: str
    listeners: dict[str, str]
    clients: dict[str, int]
    traffic: int
    moved: int
    """Clients that were asked to go elsewhere since it was started."""
    tasks: list[TaskStatus]
    settings: str = ""
    """See `HeartbeatReport`."""
    unlike: list[str] = []
    """See `Orders`."""
    staying: list[StayingStatus] = []
    """See `HeartbeatReport`."""


class GatewayList(msgspec.Struct, frozen=True):
    """Answer of GATEWAYS, whose question is empty."""

    gateways: list[GatewayStatus]


def pack(message: msgspec.Struct) -> list[bytes]:
    """A question or an answer."""
    return [msgspec.msgpack.encode(message)]


def unpack(payload: bytes, kind: type[_T]) -> _T:
    """Inverse of `pack`. Raises WireError."""
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except UNDECODABLE as error:
        raise WireError(str(error)) from None
