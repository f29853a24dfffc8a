"""A cluster over HTTP; any of its stores and gateways answers.

GET    /cluster                              every store and every group, asked now
POST   /cluster/join                         have this store let in: {"replaces", "same_host"}
DELETE /cluster/stores/NUMBER                have a store leave
POST   /cluster/groups/GROUP/transfer        have another store lead: {"to": 0}; 0: who is furthest
POST   /cluster/groups/GROUP/move            have its replica elsewhere: {"to", "from", "same_host"}
DELETE /cluster/groups/GROUP/move            not any more, if it still can be left
PUT    /cluster/replicas                     how many, how fast copied: {"replicas", "copy_rate"}
POST   /cluster/groups                       have so many data groups more: {"count"}
POST   /cluster/cuts                         have all stores pinned at one moment: {"without"}
POST   /cluster/rebalance                    spread the leaders evenly
GET    /cluster/gateways                     every gateway, and whom it serves
POST   /cluster/gateways/NAME/drain          have its clients go to others: {"undo": false}
GET    /cluster/features                     features of the log, also of a node without a cluster
POST   /cluster/features                     turn them on up to one: {"name"}; none named: all

To join and to leave take as long as the data takes: the answer says that it is under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from gateway.admin.http.requests import answer, nothing, path_name, read_body
from kernel.cluster.copy_rate import DEFAULT, RATE_MAX
from kernel.cluster.messages import Admit, GatewayStatus, Move
from kernel.cluster.records import NODE_MAX
from kernel.cluster.replica_count import REPLICAS_MAX
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.common.limits import ADDED_GROUPS_MAX
from kernel.store.drivers.system import SystemRandom

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kernel.cluster.cluster_admin import ClusterAdmin
    from kernel.cluster.local_features import LocalFeatures
    from kernel.cluster.records import Facts

GROUP_MAX = 65_535

NumberOrNone = Annotated[int, Meta(ge=0, le=NODE_MAX)]


class JoinAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    replaces: NumberOrNone = 0
    """Number of the store that leaves in the step by which this one joins."""
    same_host: bool = False
    """Whether what ends one store may end another too."""


class TransferAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: NumberOrNone = 0


class MoveAsked(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"gone": "from"}
):
    to: NumberOrNone = 0
    """Number of the store that is to have a replica; 0: none."""
    gone: NumberOrNone = 0
    """Number of the store that is not to have one any more."""
    same_host: bool = False
    """Whether what ends one replica may end another too."""


class ReplicasAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    replicas: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] | None = None
    """An odd number; null: as it is."""
    copy_rate: Annotated[int, Meta(ge=0, le=RATE_MAX)] | Literal["default"] | None = None
    """Bytes a second of copies of groups that each store takes in, 1000000 or more; 0: no bound;
    "default": what each store's settings say, as before any was set; null: as it is. The copy of a
    group that has too few replicas may take four times as much."""


class ReplicasSet(Struct, frozen=True):
    """What was asked for. What it takes goes on by itself."""

    replicas: int | None
    copy_rate: int | Literal["default"] | None


class GroupsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=ADDED_GROUPS_MAX)]
    """How many are to be added."""


class GroupsAdded(Struct, frozen=True):
    """Numbers of groups that the cluster is to have from now on. Each takes queues of new topics
    as soon as it has its replicas: `added` of GET /cluster says what it waits for.
    """

    groups: list[int]


class MoveUnderWay(Struct, frozen=True):
    """What has been asked for of a group. `done`: nothing is left to do."""

    group: int
    done: bool
    what: str


class CutAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    without: list[Annotated[int, Meta(ge=1, le=NODE_MAX)]] = []
    """Numbers of stores that are down, and left out."""


class StoreCut(Struct, frozen=True):
    """A store that has its files pinned. `address`: of the store, not of its admin side."""

    number: int
    address: str
    host: str


class CutMade(Struct, frozen=True):
    """All of these stores at one moment: `weir backup create DIR --cut CUT` at each of them, within
    ten minutes.
    """

    cut: str
    stores: list[StoreCut]


class DrainAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    undo: bool = False
    """The gateway may have clients again."""


class FeaturesAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    """None: all of them."""


class Gateways(Struct, frozen=True):
    gateways: list[GatewayStatus]


class UnderWay(Struct, frozen=True):
    """What has been asked for. `done`: nothing is left to do."""

    store: int
    done: bool
    what: str


class Moved(Struct, frozen=True):
    """A group that another store leads now. `was`: who led it; 0: not asked for."""

    group: int
    was: int
    leader: int


class MovedGroups(Struct, frozen=True):
    moved: list[Moved]


@dataclass(frozen=True, slots=True)
class Admission:
    """What this store says of itself when it asks to be let in."""

    number: int
    facts: Facts
    data_groups: int

    def asked(self, replaces: int, *, same_host: bool) -> Admit:
        """The question."""
        return Admit(self.number, self.facts, self.data_groups, replaces, same_host)


class FeatureRoutes:
    """Features of the log (ADR 26)."""

    def __init__(self, features: ClusterAdmin | LocalFeatures) -> None:
        self._features = features

    async def show(self, request: Request) -> Response:
        """All of them, and what is on."""
        return answer(await self._features.features())

    async def enable(self, request: Request) -> Response:
        """Turn one on, and those before it."""
        asked = await read_body(request, FeaturesAsked)
        known = (await self._features.features()).features
        levels = [each.level for each in known if asked.name in (None, each.name)]
        if not levels:
            raise KernelError(Code.NOT_FOUND, f"there is no feature {asked.name}")
        return answer(await self._features.features(max(levels)))


class ClusterRoutes:
    """Handlers of them."""

    def __init__(self, cluster_admin: ClusterAdmin, admission: Admission | None) -> None:
        """`admission`: None where no store is."""
        self._cluster_admin = cluster_admin
        self._admission = admission

    async def show(self, request: Request) -> Response:
        """As this store knows who belongs to it: nobody, before it has been let in."""
        return answer(await self._cluster_admin.status())

    async def join(self, request: Request) -> Response:
        """Have this store let in."""
        if self._admission is None:
            message = "this is a gateway: ask the store that is to join"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        asked = await read_body(request, JoinAsked)
        wish = self._admission.asked(asked.replaces, same_host=asked.same_host)
        progress = await self._cluster_admin.admit(wish)
        return answer(UnderWay(self._admission.number, progress.done, progress.what), 202)

    async def remove(self, request: Request) -> Response:
        """Have another store leave."""
        number = _number(request, "number", NODE_MAX)
        if self._admission is not None and number == self._admission.number:
            message = f"this is store {number} itself: ask another store to have it leave"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        progress = await self._cluster_admin.dismiss(number)
        return answer(UnderWay(number, progress.done, progress.what), 202)

    async def transfer(self, request: Request) -> Response:
        """Have another store lead a group."""
        group = _number(request, "group", GROUP_MAX)
        asked = await read_body(request, TransferAsked)
        leader = await self._cluster_admin.transfer(RaftGroup(group), asked.to)
        return answer(Moved(group, 0, leader))

    async def move(self, request: Request) -> Response:
        """Have a replica of a group elsewhere."""
        group = _number(request, "group", GROUP_MAX)
        asked = await read_body(request, MoveAsked)
        move = Move(group, asked.to, asked.gone)
        progress = await self._cluster_admin.move(move, same_host=asked.same_host)
        return answer(MoveUnderWay(group, progress.done, progress.what), 202)

    async def cancel_move(self, request: Request) -> Response:
        """Leave it where it is."""
        group = _number(request, "group", GROUP_MAX)
        progress = await self._cluster_admin.move(Move(group, cancel=True))
        return answer(MoveUnderWay(group, progress.done, progress.what), 202)

    async def set_replicas(self, request: Request) -> Response:
        """Have each group in so many stores, or copies at such a rate."""
        asked = await read_body(request, ReplicasAsked)
        if asked.replicas is None and asked.copy_rate is None:
            raise KernelError(Code.INVALID_ARGUMENT, "neither `replicas` nor `copy_rate` is given")
        if asked.copy_rate is not None:
            rate = DEFAULT if asked.copy_rate == "default" else asked.copy_rate
            await self._cluster_admin.set_copy_rate(rate)
        if asked.replicas is not None:
            await self._cluster_admin.set_replicas(asked.replicas)
        return answer(ReplicasSet(asked.replicas, asked.copy_rate))

    async def add_groups(self, request: Request) -> Response:
        """Have more data groups."""
        asked = await read_body(request, GroupsAsked)
        return answer(GroupsAdded(await self._cluster_admin.add_groups(asked.count)), 202)

    async def cut(self, request: Request) -> Response:
        """Pin what all stores have at one moment, for their backups."""
        asked = await read_body(request, CutAsked)
        number = SystemRandom().bits(64) or 1
        records = await self._cluster_admin.cut(number, asked.without)
        stores = [
            StoreCut(each, f"{record.facts.host}:{record.facts.port}", record.facts.label)
            for each, record in records.items()
        ]
        return answer(CutMade(f"{number:016x}", stores), 201)

    async def rebalance(self, request: Request) -> Response:
        """Spread the leaders evenly."""
        moved = await self._cluster_admin.spread()
        return answer(MovedGroups([Moved(*each) for each in moved]))

    async def gateways(self, request: Request) -> Response:
        """Every gateway that the leader of group 0 knows."""
        return answer(Gateways(await self._cluster_admin.gateways()))

    async def drain(self, request: Request) -> Response:
        """Have a gateway's clients go to others, or allow it clients again."""
        asked = await read_body(request, DrainAsked)
        await self._cluster_admin.drain(path_name(request, "name"), undo=asked.undo)
        return nothing()


def _number(request: Request, parameter: str, most: int) -> int:
    text = path_name(request, parameter)
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or int(text) > most:
        raise KernelError(Code.INVALID_ARGUMENT, f"{text!r} is not a number from 0 to {most}")
    return int(text)
