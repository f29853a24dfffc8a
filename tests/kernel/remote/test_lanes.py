"""The two ends of a lane, without sockets: what a failure means for what came before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from msgspec.structs import replace

from kernel.api.message import HEADER_BYTES
from kernel.api.model import TopicStatistics
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset, QueueId, RaftGroup
from kernel.remote.leader_calls import call_numbers as calls
from kernel.remote.leader_calls import call_wire as wire
from kernel.remote.leader_calls.fair_gateways import COMMIT_BYTES_MAX
from kernel.remote.leader_calls.lane_service import GatewayService
from kernel.remote.leader_calls.lanes import RemoteLeader
from kernel.remote.leader_calls.leaders import Leaders
from kernel.requests.leader import Done, Holder, Identity, Leader
from kernel.requests.publish_part import Part
from kernel.rpc.channel import Answer, Channel, decode_error, encode_error
from kernel.rpc.frame import MESSAGE_BYTES_MAX
from kernel.rpc.handshake import Hello
from tests.kernel.rpc.pair import hello

GROUP = RaftGroup(1)
STORED = wire.encode_results(([0],))[0]


@dataclass
class FakeChannel:
    sent: list[tuple[calls.Publish, Answer]] = field(default_factory=list)
    refusal: KernelError | None = None

    def call(self, method: int, parts: Sequence[bytes], answer: Answer, timeout_ms: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append((wire.decode_publish(b"".join(parts))[0], answer))
        return 1


@dataclass
class FakeRoads:
    channel: FakeChannel | None
    turns: list[Callable[[], None]] = field(default_factory=list)
    failures: list[KernelError] = field(default_factory=list)
    call_ms: int = 1_000
    produced: dict[int, int] = field(default_factory=dict)

    def channel_to(self, group: RaftGroup) -> Channel | None:
        return cast("Channel | None", self.channel)

    def failed(self, group: RaftGroup, channel: Channel | None, error: KernelError) -> None:
        self.failures.append(error)

    def soon(self, action: Callable[[], None], /) -> object:
        self.turns.append(action)
        return None

    def turn(self) -> None:
        turns, self.turns = self.turns, []
        for each in turns:
            each()

    async def figures(
        self, group: RaftGroup, queue: QueueId, name: str, offset: Offset | None = None
    ) -> TopicStatistics:
        raise AssertionError("not asked")

    async def span(self, group: RaftGroup, queue: QueueId) -> tuple[int, int]:
        raise AssertionError("not asked")

    async def offset_since(self, group: RaftGroup, queue: QueueId, time_ms: int) -> Offset:
        raise AssertionError("not asked")

    async def peek(
        self, group: RaftGroup, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        raise AssertionError("not asked")


def _publish(leader: Leader, done: Done, size: int = HEADER_BYTES, sequence: int = 1) -> None:
    part = Part([[1, 0, 1, 0]], [size], [bytes(size)])
    leader.publish((1, 1, sequence), part, done, 1)


def _codes(heard: list[object]) -> list[Code]:
    return [each.code for each in heard if isinstance(each, KernelError)]


def test_one_failure_ends_everything_that_was_sent_and_the_next_lane_is_new() -> None:
    channel = FakeChannel()
    roads = FakeRoads(channel)
    leader, heard = RemoteLeader(GROUP, roads), list[object]()
    for _ in range(3):
        _publish(leader, heard.append)
    channel.sent[0][1](KernelError(Code.NOT_LEADER, "not I", 2))
    _publish(leader, heard.append)
    assert heard == []
    assert len(channel.sent) == 3
    roads.turn()
    assert _codes(heard) == [
        Code.NOT_LEADER,
        Code.UNKNOWN_OUTCOME,
        Code.UNKNOWN_OUTCOME,
        Code.NOT_LEADER,
    ]
    assert [each.hint for each in roads.failures] == [2]
    channel.sent[1][1](STORED)
    assert len(heard) == 4
    _publish(leader, heard.append)
    channel.sent[-1][1](STORED)
    assert heard[4:] == [([0],)]
    assert [head.lane for head, _ in channel.sent] == [1, 1, 1, 2]


def test_what_a_former_leader_has_not_answered_goes_to_the_new_one() -> None:
    former, present = FakeChannel(), FakeChannel()
    roads = FakeRoads(former)
    leader = RemoteLeader(GROUP, roads)
    heard: list[object] = []
    _publish(leader, heard.append)
    leader.led_over(cast("Channel", former))
    assert roads.failures == []
    roads.channel = present
    leader.led_over(cast("Channel", present))
    assert heard == []
    roads.turn()
    assert _codes(heard) == [Code.UNKNOWN_OUTCOME]
    _publish(leader, heard.append)
    assert len(present.sent) == 1
    former.sent[0][1](STORED)  # late: it has failed already
    present.sent[0][1](STORED)
    assert len(heard) == 2


def test_a_lane_on_which_nothing_waits_follows_the_leader_without_a_failure() -> None:
    former, present = FakeChannel(), FakeChannel()
    roads = FakeRoads(former)
    leader = RemoteLeader(GROUP, roads)
    heard: list[object] = []
    _publish(leader, heard.append)
    former.sent[0][1](STORED)
    roads.channel = present
    leader.led_over(cast("Channel", present))
    _publish(leader, heard.append)
    assert (len(former.sent), len(present.sent), roads.failures) == (1, 1, [])


def test_what_never_left_was_not_done() -> None:
    for channel in (None, FakeChannel(refusal=KernelError(Code.BUSY, "too much is waiting"))):
        roads, heard = FakeRoads(channel), list[object]()
        leader = RemoteLeader(GROUP, roads)
        _publish(leader, heard.append)
        _publish(leader, heard.append)
        assert heard == []
        roads.turn()
        assert _codes(heard) == [Code.NOT_LEADER, Code.NOT_LEADER]


def test_a_late_answer_and_one_that_is_none_may_have_been_done() -> None:
    for answer in (KernelError(Code.TIMEOUT, "late"), b"\xc1"):
        channel = FakeChannel()
        roads, heard = FakeRoads(channel), list[object]()
        _publish(RemoteLeader(GROUP, roads), heard.append)
        channel.sent[0][1](answer)
        roads.turn()
        assert _codes(heard) == [Code.UNKNOWN_OUTCOME]


def test_a_batch_too_large_for_a_message_is_refused_and_its_lane_goes_on() -> None:
    channel = FakeChannel()
    roads, heard = FakeRoads(channel), list[object]()
    leader = RemoteLeader(GROUP, roads)
    _publish(leader, heard.append, MESSAGE_BYTES_MAX)
    _publish(leader, heard.append)
    channel.sent[0][1](STORED)
    roads.turn()
    assert heard[0] == ([0],)
    refusal = cast("tuple[KernelError]", heard[1])[0]
    assert refusal.code is Code.TOO_LARGE


# --- The store's end ------------------------------------------------------------------------------


@dataclass
class FakeStore:
    """Serves group 1, or says that node 7 does."""

    serves: bool = True
    done: list[tuple[int, Done]] = field(default_factory=list)
    groups: tuple[RaftGroup, ...] = (GROUP,)
    commits: int = 0
    is_writing: bool = False
    is_idle: bool = True
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def when_written(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> object:
        raise AssertionError("a commit is always on its way")

    def written(self) -> None:
        """A commit ends, and the next one begins."""
        self.commits += 1
        waiting, self.waiting = self.waiting, []
        for action in waiting:
            action()

    def serving(self, group: RaftGroup) -> Leader | None:
        return cast("Leader", self) if self.serves else None

    def standing(self, group: RaftGroup) -> tuple[int, int]:
        return 5, 7

    def publish(self, identity: Identity, part: Part, done: Done, origin: int) -> None:
        self.done.append((identity[2], done))


class NoStreams:
    """`lane_service.Holders` without any."""

    def holder(self, channel: Channel, number: int) -> Holder | None:
        return None

    def settled(self, holders: Sequence[Holder]) -> None:
        assert not holders


@dataclass(eq=False)
class Line:
    """What a service uses of a channel."""

    peer: Hello
    told: list[bytes] = field(default_factory=list)
    closed_for: list[str] = field(default_factory=list)

    def cast(self, method: int, parts: Sequence[bytes], *, control: bool) -> bool:
        self.told.append(b"".join(parts))
        return True

    def close(self, reason: str) -> None:
        self.closed_for.append(reason)


class FakeGateway:
    """A service with one gateway connected, and what it answers."""

    def __init__(self, **limits: int) -> None:
        self.store = FakeStore()
        self.turns: list[Callable[[], None]] = []
        self.service = GatewayService(
            self.store, NoStreams(), lambda _group, _identity: None, self.turns.append, **limits
        )
        self.line = Line(hello(0, role="gateway"))
        self.channel = cast("Channel", self.line)
        self.service.opened(self.channel, self.line.peer)
        self.answers: dict[int, object] = {}

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for each in turns:
            each()

    def publish(self, sequence: int, lane: int, size: int = HEADER_BYTES) -> None:
        part = Part([[1, 0, 1, 0]], [size], [bytes(size)])
        parts = wire.encode_publish((GROUP, lane), (1, 1, sequence), part, 1)

        def reply(result: object) -> None:
            self.answers[sequence] = result

        self.service.called(self.channel, calls.PUBLISH, b"".join(parts), reply)

    def code(self, sequence: int) -> Code:
        return cast("KernelError", self.answers[sequence]).code


def test_behind_a_failure_a_store_does_nothing_until_the_gateway_begins_a_new_lane() -> None:
    fake_gateway = FakeGateway()
    fake_gateway.publish(1, lane=1)
    fake_gateway.store.done[0][1](KernelError(Code.UNKNOWN_OUTCOME, "deposed"))
    fake_gateway.publish(2, lane=1)
    assert fake_gateway.code(2) is Code.NOT_LEADER
    fake_gateway.publish(1, lane=2)
    fake_gateway.publish(2, lane=2)
    fake_gateway.publish(3, lane=1)
    assert fake_gateway.code(3) is Code.NOT_LEADER
    assert [sequence for sequence, _ in fake_gateway.store.done] == [1, 1, 2]


def test_a_store_that_does_not_lead_names_the_one_that_does() -> None:
    fake_gateway = FakeGateway()
    fake_gateway.store.serves = False
    fake_gateway.publish(1, lane=1)
    error = cast("KernelError", fake_gateway.answers[1])
    assert (error.code, error.hint) == (Code.NOT_LEADER, 7)
    fake_gateway.store.serves = True
    fake_gateway.publish(2, lane=1)
    assert fake_gateway.code(2) is Code.NOT_LEADER
    assert fake_gateway.store.done == []
    assert fake_gateway.service.figures.redirected == 1


def test_calls_and_bytes_of_a_connection_are_bounded_and_counted() -> None:
    for limits in ({"calls_max": 2}, {"bytes_max": 250}):
        fake_gateway = FakeGateway(**limits)
        for sequence in (1, 2, 3):
            fake_gateway.publish(sequence, lane=1)
        figures = fake_gateway.service.figures
        assert fake_gateway.code(3) is Code.BUSY
        assert figures.over_calls + figures.over_bytes == 1
        for _, done in fake_gateway.store.done:
            done(([0],))
        fake_gateway.publish(3, lane=2)
        assert len(fake_gateway.store.done) == 3


def test_a_gateway_that_sends_much_waits_beside_another_and_what_it_said_stays_in_order() -> None:
    fake_gateway = FakeGateway()
    store = fake_gateway.store
    store.is_writing, store.is_idle = True, False
    peer = replace(fake_gateway.line.peer, store="another")
    other = cast("Channel", Line(peer))
    fake_gateway.service.opened(other, peer)
    fake_gateway.publish(1, lane=1)
    parts = wire.encode_publish(
        (GROUP, 1), (2, 1, 7), Part([[1, 0, 1, 0]], [HEADER_BYTES], [bytes(HEADER_BYTES)]), 1
    )
    fake_gateway.service.called(other, calls.PUBLISH, b"".join(parts), lambda _: None)
    large = COMMIT_BYTES_MAX // 2
    for sequence in (2, 3, 4):
        fake_gateway.publish(sequence, lane=1, size=large)
    assert [sequence for sequence, _ in store.done] == [1, 7, 2, 3]
    fake_gateway.turn()
    assert len(store.done) == 4
    fake_gateway.service.called(fake_gateway.channel, calls.PUBLISH, b"\xc1", lambda _: None)
    assert not fake_gateway.line.closed_for
    store.written()
    assert [sequence for sequence, _ in store.done][4:] == [4]
    fake_gateway.turn()
    assert fake_gateway.line.closed_for


def test_a_connection_that_comes_again_takes_the_place_of_the_old_one() -> None:
    fake_gateway = FakeGateway()
    peer = fake_gateway.line.peer
    fake_gateway.service.opened(cast("Channel", Line(peer)), peer)
    assert fake_gateway.line.closed_for == ["the same gateway has connected again"]


def test_changes_of_leaders_are_told_once_a_turn() -> None:
    fake_gateway = FakeGateway()
    fake_gateway.line.told.clear()
    fake_gateway.service.leaders_changed()
    fake_gateway.service.leaders_changed()
    assert len(fake_gateway.turns) == 1
    fake_gateway.turns[0]()
    assert [list(wire.decode_standings(each)) for each in fake_gateway.line.told] == [
        [calls.Standing(GROUP, 5, 7)]
    ]


# --- Who leads what -------------------------------------------------------------------------------


def test_the_highest_term_counts_and_a_doubt_ends_what_is_believed() -> None:
    leaders = Leaders()
    leaders.told(1, 5, 2)
    leaders.told(1, 4, 3)
    leaders.told(1, 5, 3)
    assert leaders.of(1) == 2
    leaders.refused(1, by=3, hint=3)
    assert leaders.of(1) == 2
    leaders.refused(1, by=2, hint=3)
    assert leaders.of(1) == 3
    leaders.doubted(3)
    assert leaders.of(1) == 0
    leaders.told(1, 4, 2)
    assert leaders.of(1) == 0
    leaders.told(1, 6, 1)
    assert leaders.of(1) == 1


def test_an_error_travels_with_the_node_to_ask_instead() -> None:
    error = decode_error(encode_error(KernelError(Code.NOT_LEADER, "ask another\nnode", 42)))
    assert (error.code, error.message, error.hint) == (Code.NOT_LEADER, "ask another\nnode", 42)
    for payload in (b"", b"not_leader x\n", "not_leader ²\n".encode(), b"not_leader 99999999999\n"):
        assert decode_error(payload).hint == 0
