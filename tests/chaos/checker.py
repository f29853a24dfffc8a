"""What a history must keep to: the total-queue and the FIFO checker, without clocks or processes.

lost         a message answered with ok came
unsent       what came was sent, and not always refused
copied       unmarked, it came no oftener than it may have been stored
unexplained  marked, it came only after a lease's end, the end of a connection, or a fault
undone       what was acked for sure under a lease that held does not come again
order        the messages of a key came for the first time in the order in which they were sent, but
             for returned ones of lanes that may have `late_returns`: those are marked, or were
             stored before the end of a connection for which they were on their way
overtaken    of a blocking key, none came before the one ahead of it was acked, but together with it
retried      while processes restart in order, no message needs a second retry (`retried`)
paused       publishers go on in time (`pauses`)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .history import Acked, Down, Event, Fault, Got, Note, Sent, key_of

CLOCK_SLACK_SECONDS = 0.05
"""A client notes the time a little after an event, and the store's lease began before."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a lane's clients were promised beyond what all are."""

    stored_once: bool = False
    """A publish that is repeated is known by its id and stored once."""
    blocking: bool = False
    """Of a key, the next message waits until the one before is acked."""
    late_returns: bool = False
    """What comes back from a consumer that is gone may come behind what came meanwhile; it is
    marked if that consumer may have seen it. (MQTT wants order within a session; SQS and RocketMQ
    block the key.)"""
    unordered: bool = False
    """Messages have no key, and the topic may have several queues."""
    comes_once: bool = False
    """What came never comes again (QoS 2)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    rule: str
    lane: str
    ident: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.ident}: {self.text}"


@dataclass(slots=True)
class _Message:
    """What happened to one ident."""

    sent: list[Sent] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)

    @property
    def copies(self) -> int:
        """How often it may be stored."""
        return sum(each.copies for each in self.sent if each.outcome != "refused")


class _Lane:
    """The events of one lane by message."""

    def __init__(self) -> None:
        self.messages: dict[str, _Message] = defaultdict(_Message)
        self.downs: list[float] = []
        self.down_at: dict[int, float] = {}

    def add(self, event: Sent | Got | Acked | Down) -> None:
        match event:
            case Sent():
                self.messages[event.ident].sent.append(event)
            case Got():
                self.messages[event.ident].got.append(event)
            case Acked():
                self.messages[event.ident].acked.append(event)
            case Down():
                self.downs.append(event.at)
                self.down_at[event.link] = event.at

    def was_returned(self, message: _Message) -> bool:
        """Whether a message that came may have been under way to a consumer that is gone."""
        first = message.got[0]
        stored = min((each.ended for each in message.sent), default=first.at)
        return first.marked or any(stored <= down <= first.at for down in self.downs)


def check(
    history: Iterable[Event], promises: Mapping[str, Promise], grace_seconds: float
) -> list[Violation]:
    """All broken promises. `grace_seconds`: how long after a fault's end its effects still come:
    an election, and the time that others have to say what they hold.
    """
    lanes: dict[str, _Lane] = {name: _Lane() for name in promises}
    faults: list[Fault] = []
    for event in sorted(history, key=lambda each: each.at):
        if isinstance(event, Fault):
            faults.append(event)
        elif not isinstance(event, Note):
            lanes[event.lane].add(event)
    found: list[Violation] = []
    for name, lane in lanes.items():
        causes = _Causes(lane, faults, grace_seconds)
        for ident, message in lane.messages.items():
            for rule, text in _message_findings(message, promises[name], causes):
                found.append(Violation(rule, name, ident, text))
        if not promises[name].unordered:
            found += _order_findings(name, lane, promises[name])
    return found


class _Causes:
    """Why a message may come again."""

    def __init__(self, lane: _Lane, faults: Sequence[Fault], grace_seconds: float) -> None:
        self._lane = lane
        self._downs = sorted(lane.downs)
        self._faults = faults
        self._grace = grace_seconds

    def between(self, since: float, until: float) -> bool:
        """Whether any connection ended in between, or a fault has its effects at the later time."""
        downs = bisect_right(self._downs, until) > bisect_right(self._downs, since)
        return downs or any(
            fault.began <= until <= fault.ended + self._grace for fault in self._faults
        )

    def released(self, got: Got, until: float) -> bool:
        """Whether the lease under which something came had ended by a time."""
        if got.held_until:
            return got.held_until <= until + CLOCK_SLACK_SECONDS
        return self._lane.down_at.get(got.link, until + 1) <= until


def _message_findings(
    message: _Message, promise: Promise, causes: _Causes
) -> Iterable[tuple[str, str]]:
    """(rule, what is wrong)."""
    accepted = [each for each in message.sent if each.outcome == "ok"]
    if accepted and not message.got:
        yield "lost", f"answered with ok after {len(message.sent)} attempts, and never came"
    if not message.got:
        return
    if not message.sent:
        yield "unsent", "came, and was never sent"
        return
    if not message.copies:
        yield "unsent", "came, and every attempt was refused"
        return
    copies = 1 if promise.stored_once else message.copies
    unmarked = sum(not each.marked for each in message.got)
    if unmarked > copies:
        yield "copied", f"came {unmarked} times without a mark, may be stored {copies} times"
    if promise.comes_once and len(message.got) > copies:
        yield "copied", f"came {len(message.got)} times, and may never come again"
    previous: Got | None = None
    for got in message.got:
        since = message.sent[0].began if previous is None else previous.at
        if (
            got.marked
            and not causes.between(since, got.at)
            and not (previous is not None and causes.released(previous, got.at))
        ):
            yield "unexplained", f"came marked at {got.at:.3f} without a cause since {since:.3f}"
        previous = got
    yield from _undone(message, copies)


def _undone(message: _Message, copies: int) -> Iterable[tuple[str, str]]:
    """Acked for sure as often as it may be stored, and still it came."""
    sure = []
    for acked in message.acked:
        before = [each for each in message.got if each.at <= acked.began]
        held = before and (not before[-1].held_until or acked.at <= before[-1].held_until)
        if acked.sure and held:
            sure.append(acked.at)
    if len(sure) >= copies:
        over = sorted(sure)[copies - 1]
        for got in message.got:
            if got.at > over:
                yield "undone", f"came at {got.at:.3f}, though acked for sure at {over:.3f}"


def _order_findings(name: str, lane: _Lane, promise: Promise) -> Iterable[Violation]:
    """First comings, key by key."""
    firsts: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for ident, message in lane.messages.items():
        if message.got and not (promise.late_returns and lane.was_returned(message)):
            key, number = key_of(ident)
            firsts[key].append((message.got[0].at, number, ident))
    for key, comings in firsts.items():
        comings.sort(key=lambda each: each[:2])
        highest = -1
        for at, number, ident in comings:
            if number < highest:
                text = f"came first at {at:.3f}, after number {highest} of its key"
                yield Violation("order", name, ident, text)
            highest = max(highest, number)
            ahead = lane.messages.get(f"{key}/{number - 1}")
            if promise.blocking and ahead is not None and ahead.got:
                asked = [each.began for each in ahead.acked]
                together = any(each.at == at for each in ahead.got)
                if not together and (not asked or min(asked) > at):
                    text = f"came at {at:.3f}, before number {number - 1} of its key was acked"
                    yield Violation("overtaken", name, ident, text)


def retried(history: Iterable[Event], since: float, until: float) -> list[Violation]:
    """Messages of which two attempts failed, of those first sent in a time."""
    attempts: dict[str, list[Sent]] = defaultdict(list)
    for event in history:
        if isinstance(event, Sent):
            attempts[event.ident].append(event)
    return [
        Violation("retried", each[0].lane, ident, f"{len(each) - 1} attempts failed: {each[0].why}")
        for ident, each in attempts.items()
        if len(each) > 2 and since <= each[0].began <= until
    ]


def pauses(
    history: Iterable[Event], lanes: Iterable[str], since: float, until: float
) -> dict[str, float]:
    """By lane, the longest time in [since, until] without a publish answered with ok, in
    seconds."""
    ends: dict[str, list[float]] = {lane: [since] for lane in lanes}
    for event in history:
        if isinstance(event, Sent) and event.outcome == "ok" and since < event.ended < until:
            ends[event.lane].append(event.ended)
    longest = {}
    for lane, times in ends.items():
        times = [*sorted(times), until]
        longest[lane] = max(after - before for before, after in pairwise(times))
    return longest


def around(history: Iterable[Event], ident: str, most: int = 60) -> list[Event]:
    """The events that tell what happened to a message: its own, those of its neighbours in its
    key, connections of its lane and faults at the time; at most so many, its own first."""
    events = sorted(history, key=lambda each: each.at)
    own = [each for each in events if getattr(each, "ident", None) == ident]
    if not own:
        return []
    key, number = key_of(ident)
    neighbours = {f"{key}/{number - 1}", f"{key}/{number + 1}"}
    lane = key.partition("/")[0]
    since = min(getattr(each, "began", each.at) for each in own) - 1
    until = own[-1].at + 1

    def tells(event: Event) -> bool:
        if isinstance(event, Fault):
            return event.began <= until and since <= event.ended
        if isinstance(event, Down | Note):
            return event.lane == lane and since <= event.at <= until
        return event.ident in neighbours and since <= event.at <= until

    near = [each for each in events if tells(each)]
    return sorted((own + near)[:most], key=lambda each: each.at)
