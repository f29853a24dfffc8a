"""What comes over the mesh is checked, and frames are carried out once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
import pytest

from kernel.api.model import DEFAULT_TENANT, QueueRef, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import TRANSIENT_GROUP, TopicId, queue_id
from kernel.remote import things
from kernel.remote.leader_calls.call_wire import WireError, decode
from kernel.remote.mesh import link as mesh_link
from kernel.remote.mesh import mesh_wire as wire
from kernel.remote.mesh.link import LinkInbox, MeshLink
from kernel.remote.mesh.remote_memory import ANNOUNCED_MAX, ANNOUNCED_SLACK
from kernel.rpc.channel import Channel
from kernel.rpc.frame import RpcError
from tests.kernel.remote.cluster import Pair
from tests.kernel.remote.gateway import slot
from tests.kernel.remote.local import peer_of
from tests.kernel.three_stores import until

TRANSIENT = TopicOptions(durable=False)
ONE = slot(b"1")


def frame(
    number: int = 1,
    *,
    runs: object = (),
    live: object = (),
    lengths: object = (len(ONE),),
    slots: bytes = ONE,
) -> bytes:
    head = msgspec.msgpack.encode((runs, live, lengths, 1))
    return b"".join(wire.encode_frame(7, number, 0, head, [slots]))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x" * 28,
        frame()[:-1],
        frame() + b"x",
        frame(slots=b"x", lengths=[1]),
        frame(runs=[(1, 0, 2, 0)]),
        frame(runs=[(1, 0, 0, 0)]),
        frame(runs=[(1, 0, 1, 1 << 16)]),
        frame(runs=[(-1, 0, 1, 0)]),
        frame(live=[("t", "a/+", 0, 1)]),
        frame(live=[("t", "a", 1, 1)]),
        frame(live=[("t", "a", 0, 0)]),
        frame(live="x"),
    ],
)
def test_a_frame_that_is_none_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode_frame(payload)


def topic(ident: int = TRANSIENT_GROUP << 32 | 1, **options: object) -> TopicInfo:
    chosen = TopicOptions(**{"durable": False, **options})  # type: ignore[arg-type]
    queues = (QueueRef(queue_id(TopicId(ident), 0), TRANSIENT_GROUP),)
    return TopicInfo("t", "v", TopicId(ident), 1, chosen, queues, {})


def test_a_topic_that_does_not_live_in_memory_is_refused() -> None:
    assert wire.checked(topic()) == topic()
    wrong = TopicInfo("t", "v", TopicId(1), 1, TRANSIENT, topic().queues, {})
    none = TopicInfo("t", "v", TopicId(1), 1, TRANSIENT, (), {})
    for each in (topic(durable=True), topic(1 << 48), wrong, none):
        with pytest.raises(WireError):
            wire.checked(each)


GARBAGE = [
    (wire.ANNOUNCE, b""),
    (wire.ANNOUNCE, b"\xc1"),
    (wire.ANNOUNCE, wire.encode((wire.BEGINS, []))[0]),  # for the second time
    (wire.ANNOUNCE, wire.encode((0, [things.TopicIs(topic(durable=True))]))[0]),
    (wire.ANNOUNCE, wire.encode((0, [wire.WatchIs("t", "a/#/b")]))[0]),
    (wire.RESERVE, b"x"),
    (wire.RESERVE, wire.encode(wire.Named(1, "house", "t", "n"))[0]),
    (wire.NAME, b"x"),
    (127, b""),
]


@pytest.mark.parametrize(("method", "payload"), GARBAGE)
async def test_garbage_ends_the_connection_and_nothing_else(
    two: Pair, method: int, payload: bytes
) -> None:
    nodes, one, other = two
    await peer_of(one).topic("v", TRANSIENT)
    (channel,) = one.leaders.channels
    channel.call(method, [payload], lambda _answer: None, 1_000)
    await until(lambda: channel.is_closed)
    await until(lambda: one.leaders.connected)
    taken = peer_of(other).submit(other.topology.topics[DEFAULT_TENANT, "v"], b"x")
    await taken.done
    assert not taken.failures
    store = nodes[0].opened.client
    await until(lambda: store.topic(DEFAULT_TENANT, "v"))


@pytest.mark.parametrize("method", [wire.FRAME, wire.MEET, wire.DONE, wire.RELEASE, wire.LEFT])
async def test_garbage_that_is_told_ends_the_connection(two: Pair, method: int) -> None:
    nodes, one, _ = two
    to_store = method in (wire.DONE, wire.RELEASE, wire.LEFT)
    (near,) = one.leaders.channels
    all_subscribed = nodes[0].service._gateways
    far = next(each for each in all_subscribed if each.peer.store == one.mesh.process)
    (near if to_store else far).cast(method, [b"\xc1"])
    await until(lambda: near.is_closed)
    await until(lambda: one.leaders.connected)


async def test_a_gateway_that_tells_too_much_is_not_heard(two: Pair) -> None:
    nodes, one, _ = two
    remote_memory = nodes[0].opened.client.remote_memory
    remote_memory._announced_max = 2 - ANNOUNCED_SLACK
    (channel,) = one.leaders.channels
    for name in ("v1", "v2"):
        await peer_of(one).topic(name, TRANSIENT)
    assert one.leaders.channels == [channel]
    state = one.transient.replica.state
    one.local.reserve = None
    await peer_of(one).topic("v3", TRANSIENT)
    assert channel.is_closed
    remote_memory._announced_max = ANNOUNCED_MAX
    await until(lambda: nodes[0].opened.client.topic(DEFAULT_TENANT, "v3"))
    assert len(state.topic_names) == 3


class Wires:
    """What one end has told the other."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bytes]] = []

    def tell(self, method: int, parts: Sequence[bytes]) -> None:
        self.told.append((method, b"".join(parts)))

    def numbers(self) -> list[int]:
        return [wire.decode_frame(each)[1] for _, each in self.told]

    def answers(self) -> list[tuple[int, KernelError | None]]:
        dones = [decode(wire.dones, each) for _, each in self.told]
        return [(each.number, wire.failure_of(each)) for each in dones]


def send(link: MeshLink, heard: list[KernelError | None], count: int = 1) -> None:
    for _ in range(count):
        link.send(wire.encode_messages((), (), [len(ONE)], 0), [ONE], len(ONE), heard.append)


def test_a_link_sends_again_what_is_unanswered_and_nothing_else() -> None:
    link = MeshLink(7)
    heard: list[KernelError | None] = []
    send(link, heard)
    first, second = Wires(), Wires()
    link.connected(cast("Channel", first))
    send(link, heard, 3)
    assert first.numbers() == [1, 2, 3, 4]
    link.done(wire.Done(7, 2, "", ""))
    link.done(wire.Done(7, 2, "", ""))  # a repeated answer
    link.done(wire.Done(8, 1, "", ""))  # of another link
    link.broken(cast("Channel", first))
    send(link, heard)
    link.connected(cast("Channel", second))
    assert second.numbers() == [1, 3, 4, 5]
    assert heard == [None]
    assert link.bytes == 4 * len(ONE)
    link.over()
    assert [each.code for each in heard if each is not None] == [Code.UNAVAILABLE] * 4
    assert (link.bytes, link.frames) == (0, 0)


def test_a_link_tells_up_to_where_it_has_heard() -> None:
    link, wires = MeshLink(7), Wires()
    link.connected(cast("Channel", wires))
    send(link, [], 4)
    for number in (2, 1, 4):
        link.done(wire.Done(7, number, "", ""))
    send(link, [])
    assert wire.decode_frame(wires.told[-1][1])[2] == 2


def test_an_inbox_takes_each_frame_once_and_remembers_failures() -> None:
    inbox, wires = LinkInbox(7, 5), Wires()
    inbox.channel = cast("Channel", wires)
    assert inbox.is_new(5, 4)
    assert not inbox.is_new(5, 4)  # sent again while it is carried out: answered once, then
    assert wires.answers() == []
    inbox.done(5, KernelError(Code.BUSY, "full"))
    assert inbox.is_new(6, 4)
    inbox.done(6, None)
    assert not inbox.is_new(5, 4)
    assert not inbox.is_new(6, 4)
    codes = [(number, error and error.code) for number, error in wires.answers()]
    assert codes == [(5, Code.BUSY), (6, None), (5, Code.BUSY), (6, None)]
    assert inbox.is_new(7, 6)
    assert not inbox._failed
    with pytest.raises(RpcError):
        inbox.is_new(9, 6)


def test_a_frame_larger_than_a_message_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    link = MeshLink(7)
    too_large = link.refusal(mesh_link.FRAME_BYTES_MAX + 1)
    assert too_large is not None
    assert too_large.code is Code.TOO_LARGE
    assert link.refusal(mesh_link.FRAME_BYTES_MAX) is None  # one alone may be as large as it likes
    monkeypatch.setattr(mesh_link, "LINK_FRAMES_MAX", 2)
    send(link, [], 2)
    busy = link.refusal(1)
    assert busy is not None
    assert busy.code is Code.BUSY
