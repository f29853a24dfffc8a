"""The gateways of a cluster, and which of their clients are to move: a table that the leader of
group 0 keeps in memory. Pure: time is an argument.

A gateway reports every second: it tells whom it serves, and hears who is to go where. One that is
silent for SILENT_MS is gone. A new leader of group 0 knows them all a second later.

    to be drained?   has clients?   stage       what it hears
    no               any            SERVING     moves for load, as below
    yes              yes            DRAINING    everybody moves, spread over those that serve
    yes              no             DRAINED     nothing

A gateway that tells of no clients may have got some since, as long as it had not heard that it
should not: until it has, it counts as one with clients.

    load          reading   after         becomes       and
    CALM          over      -             HIGH
    HIGH          under     -             CALM
    HIGH          over      HOLD_MS       COOLING_DOWN  some clients move to the one with the least
    COOLING_DOWN  any       COOL_DOWN_MS  CALM

The reading of a gateway is over if its traffic is above the bound, while another one has less than
half as much, or if it serves most consumers of a topic that is hot, while another one has fewer
than its share: then clients with such consumers move, no others. What clients speak is an opaque
word here; each kind moves in its own way.

Some settings have to be the same at all gateways. Each tells one word for them, and hears who has
told another one. Nothing else follows: while such a setting is changed, gateway by gateway, they
differ for a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from ..common.errors import Code, KernelError
from .limit_shares import LimitTable
from .messages import (
    TASKS_MAX,
    UNLIKE_MAX,
    ClientMove,
    ConsumingReport,
    GatewayStatus,
    HeartbeatReport,
    Orders,
    Role,
    StayingStatus,
    Task,
    TaskStatus,
)

SILENT_MS = 5_000
"""Five reports missed: longer than an election of group 0, which cannot hear any."""

HOLD_MS = 5_000
"""So long traffic has been high before anybody is asked to move: a burst is over by then."""

COOL_DOWN_MS = 60_000
"""So long the next move waits: clients have come back, and what they send has been measured."""

MOVES_MAX = 1_000
"""Clients of one gateway that are told to move in one second: a gateway takes in that many logins
without its other clients noticing much."""

SMOOTHED = 0.3
"""Weight of the last report in traffic and in the messages a second of a topic: a burst of one
second counts for a third, and a topic is hot all the same when its producers, or the disk they wait
for, stop for a second.
"""

RATE_MIN = 0.1
"""Messages a second below which a topic is forgotten."""

GATEWAYS_MAX = 1_024
"""More than a cluster can use; one more is not heard."""


class Stage(StrEnum):
    """What a gateway is to be."""

    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"


class Load(StrEnum):
    """How busy it has been lately."""

    CALM = "calm"
    HIGH = "high"
    COOLING_DOWN = "resting"


STAGES = {
    (False, False): Stage.SERVING,
    (False, True): Stage.SERVING,
    (True, True): Stage.DRAINING,
    (True, False): Stage.DRAINED,
}
"""By (is to be drained, may have clients)."""

LOADS = {
    (Load.CALM, False): (Load.CALM, 0),
    (Load.CALM, True): (Load.HIGH, 0),
    (Load.HIGH, False): (Load.CALM, 0),
    (Load.HIGH, True): (Load.COOLING_DOWN, HOLD_MS),
    (Load.COOLING_DOWN, False): (Load.CALM, COOL_DOWN_MS),
    (Load.COOLING_DOWN, True): (Load.CALM, COOL_DOWN_MS),
}
"""By (load, reading is over): what it becomes, once it has been so for so many milliseconds."""


@dataclass(slots=True)
class _Gateway:
    told: HeartbeatReport
    heard_ms: int
    load: Load = Load.CALM
    since_ms: int = 0
    produced: dict[tuple[str, str], float] = field(default_factory=dict)
    """Messages a second by tenant and topic, smoothed: of the TASKS_MAX with the most."""
    is_to_drain: bool = False
    """What it heard when it told this."""
    turns_away: bool = False
    """It had heard before that it is to be drained: what it tells is how that goes."""

    @property
    def clients(self) -> int:
        return sum(self.told.clients.values())

    def take_rates(self, told: HeartbeatReport, seconds: float) -> None:
        """What was published since the report before."""
        rates = {topic: rate * (1 - SMOOTHED) for topic, rate in self.produced.items()}
        for each in told.tasks:
            if each.role is Role.PRODUCE:
                topic = each.tenant, each.topic
                rates[topic] = rates.get(topic, 0.0) + each.amount / seconds * SMOOTHED
        known = (each for each in rates.items() if each[1] >= RATE_MIN)
        self.produced = dict(heapq.nlargest(TASKS_MAX, known, key=lambda each: each[1]))

    def stage(self, is_to_drain: bool) -> Stage:
        return STAGES[is_to_drain, bool(self.clients) or not self.turns_away]

    def consumers(self, of: ConsumingReport) -> int:
        return sum(each.amount for each in self.told.tasks if _consumed(each) == of)


class Gateways:
    """The table of gateways, kept by the leader of group 0."""

    def __init__(self, traffic_max: int, hot_messages: int) -> None:
        """`traffic_max`: bytes a second, in and out, above which clients move; `hot_messages`:
        messages a second for one topic above which its consumers are spread; 0: never.
        """
        self._traffic_max = traffic_max
        self._hot_messages = hot_messages
        self._known: dict[str, _Gateway] = {}
        self._limits = LimitTable()

    def clear(self) -> None:
        """Another store leads group 0: it is told, not this one."""
        self._known.clear()
        self._limits.clear()

    # --- What gateways say ------------------------------------------------------------------

    def take_report(self, told: HeartbeatReport, drained: Collection[str], now_ms: int) -> Orders:
        """A gateway tells whom it serves; what it is to do. `drained`: names of those that are to
        have no clients. Raises KernelError: LIMIT_EXCEEDED (GATEWAYS_MAX), ALREADY_EXISTS (another
        process of this name reports too).
        """
        self._forget(now_ms)
        known = self._known.get(told.name)
        if known is None:
            if len(self._known) >= GATEWAYS_MAX:
                message = f"{GATEWAYS_MAX} gateways are known already"
                raise KernelError(Code.LIMIT_EXCEEDED, message)
            known = self._known[told.name] = _Gateway(told, now_ms, since_ms=now_ms)
        elif known.told.process != told.process and now_ms - known.heard_ms < SILENT_MS // 2:
            message = f"another gateway of the name {told.name!r} reports too"
            raise KernelError(Code.ALREADY_EXISTS, message)
        else:
            known.take_rates(told, max(now_ms - known.heard_ms, 100) / 1_000)
        knew = known.is_to_drain and known.told.process == told.process
        known.told, known.heard_ms = told, now_ms
        known.turns_away, known.is_to_drain = knew, told.name in drained
        others = [each for name, each in self._serving(drained) if name != told.name]
        stage = known.stage(known.is_to_drain)
        if stage is Stage.SERVING:
            moves = self._relieve(known, others, now_ms)
        else:
            moves = _spread(known, others) if stage is Stage.DRAINING else []
        unlike = self._unlike(told)
        return Orders(
            known.is_to_drain,
            moves,
            [each.told.process for each in others],
            heapq.nsmallest(UNLIKE_MAX, unlike),
            len(unlike),
            self._limits.take(told.name, told.limits, now_ms),
            len(self._known),
        )

    def _forget(self, now_ms: int) -> None:
        for name, each in list(self._known.items()):
            if now_ms - each.heard_ms > SILENT_MS:
                del self._known[name]
                self._limits.forget(name)

    def _unlike(self, told: HeartbeatReport) -> list[str]:
        """Names of the gateways that have told other settings."""
        own = told.settings
        if not own:
            return []
        return [name for name, each in self._known.items() if each.told.settings not in {"", own}]

    def _serving(self, drained: Collection[str]) -> Iterator[tuple[str, _Gateway]]:
        """Those that take clients, the one with the least traffic first."""
        found = [each for each in self._known.items() if each[0] not in drained]
        return iter(sorted(found, key=lambda each: (each[1].told.traffic, each[0])))

    # --- Load -------------------------------------------------------------------------------

    def _relieve(self, gateway: _Gateway, others: list[_Gateway], now_ms: int) -> list[ClientMove]:
        wanted = self._too_much(gateway, others) or self._too_hot(gateway, others)
        becomes, after_ms = LOADS[gateway.load, bool(wanted)]
        if now_ms - gateway.since_ms < after_ms:
            return []
        moves = wanted if becomes is Load.COOLING_DOWN else []
        if becomes is not gateway.load:
            gateway.load, gateway.since_ms = becomes, now_ms
        return moves

    def _too_much(self, gateway: _Gateway, others: list[_Gateway]) -> list[ClientMove]:
        """Who would have to go for both to have the same traffic."""
        own = gateway.told.traffic
        if not self._traffic_max or own <= self._traffic_max or not others:
            return []
        least = others[0].told.traffic
        if 2 * least >= own or gateway.clients < 2:
            return []
        share = (own - least) / (2 * own)
        found = [
            _move(kind, min(max(int(count * share), 0), MOVES_MAX), others[0])
            for kind, count in sorted(gateway.told.clients.items())
        ]
        return [each for each in found if each.clients]

    def _too_hot(self, gateway: _Gateway, others: list[_Gateway]) -> list[ClientMove]:
        """Consumers of hot topics that other gateways have too few of: of all groups at once, or a
        topic with many would take as many minutes.
        """
        if not self._hot_messages or not others:
            return []
        rates: dict[tuple[str, str], float] = {}
        for each in (gateway, *others):
            for topic, rate in each.produced.items():
                rates[topic] = rates.get(topic, 0.0) + rate
        moves: list[ClientMove] = []
        left = MOVES_MAX
        moved: dict[ConsumingReport, int] = {}
        for task in gateway.told.tasks:
            of = _consumed(task)
            if of is None or rates.get((of.tenant, of.topic), 0.0) < self._hot_messages:
                continue
            there, least = min(
                ((each.consumers(of), each) for each in others), key=lambda each: each[0]
            )
            surplus = (gateway.consumers(of) - there) // 2 - moved.get(of, 0)
            surplus = min(surplus, task.amount, left)
            if surplus > 0:
                moves.append(_move(task.kind, surplus, least, of))
                moved[of] = moved.get(of, 0) + surplus
                left -= surplus
        return moves

    # --- For operators ----------------------------------------------------------------------

    def check_known(self, name: str, now_ms: int) -> None:
        """Whether a gateway reports. Raises KernelError NOT_FOUND."""
        self._forget(now_ms)
        if name not in self._known:
            raise KernelError(Code.NOT_FOUND, f"no gateway {name!r} is connected")

    def check_drain(self, name: str, drained: Collection[str], now_ms: int) -> None:
        """Whether a gateway may be drained. Raises KernelError: NOT_FOUND; NOT_ALLOWED: nobody
        would serve its clients.
        """
        self.check_known(name, now_ms)
        if not [each for each, _ in self._serving({*drained, name})]:
            message = "there is no other gateway that could serve its clients"
            raise KernelError(Code.NOT_ALLOWED, message)

    def status(self, drained: Collection[str], now_ms: int) -> list[GatewayStatus]:
        """What is shown of every gateway, by name."""
        self._forget(now_ms)
        return [
            GatewayStatus(
                name=name,
                stage=each.stage(name in drained),
                load=each.load,
                label=each.told.label,
                version=each.told.version,
                listeners=each.told.listeners,
                clients=each.told.clients,
                traffic=each.told.traffic,
                moved=each.told.moved,
                tasks=[
                    TaskStatus(
                        task.role, task.tenant, task.topic, task.group, task.kind, task.amount
                    )
                    for task in each.told.tasks
                ],
                settings=each.told.settings,
                unlike=heapq.nsmallest(UNLIKE_MAX, self._unlike(each.told)),
                staying=[StayingStatus(of.kind, of.who, of.times) for of in each.told.staying],
            )
            for name, each in sorted(self._known.items())
        ]


def _consumed(task: Task) -> ConsumingReport | None:
    """What a task's clients consume."""
    if task.role is not Role.CONSUME:
        return None
    return ConsumingReport(task.tenant, task.topic, task.group)


def _move(kind: str, amount: int, to: _Gateway, of: ConsumingReport | None = None) -> ClientMove:
    return ClientMove(kind, amount, to.told.process, to.told.listeners, of)


def _spread(gateway: _Gateway, others: list[_Gateway]) -> list[ClientMove]:
    """Everybody goes, evenly to all others; nobody if there are none."""
    found: list[ClientMove] = []
    left = MOVES_MAX
    for kind, count in sorted(gateway.told.clients.items()):
        count = min(count, left)  # noqa: PLW2901 - what is left of the bound
        left -= count
        for number, other in enumerate(others):
            part = count // len(others) + (number < count % len(others))
            if part:
                found.append(_move(kind, part, other))
    return found
