"""The link of a store's client: straight to leaders here, by wire to others, never out of order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.common.limits import PUBLISH_DEADLINE_MS
from kernel.remote.peer_stores.mixed_link import MixedLink
from kernel.requests.leader import Done, Leader
from kernel.requests.request_pipeline import Attempt, RequestPipeline
from tests.kernel.three_stores import CLOCK
from tests.simulator.loop import SimulatedClock, VirtualLoop

GROUP = RaftGroup(1)


class Somewhere:
    """A leader that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Done]] = []

    def answer(self, result: object) -> None:
        asked, self.asked = self.asked, []
        for _, done in asked:
            done(result)


class Ways:
    """Both ends of a link."""

    def __init__(self) -> None:
        self.here, self.there = Somewhere(), Somewhere()
        self.is_here = True
        loop = asyncio.get_running_loop()
        self.link = MixedLink(self, lambda _: cast("Leader", self.there), loop.call_soon)

    def serving(self, _group: RaftGroup) -> Leader | None:
        return cast("Leader", self.here) if self.is_here else None


def put(what: str) -> Attempt:
    def attempt(leader: Leader, done: Done) -> None:
        cast("Somewhere", leader).asked.append((what, done))

    return attempt


async def test_commands_go_where_the_group_is_led() -> None:
    ways, heard = Ways(), list[object]()
    ways.link.send(GROUP, put("a"), heard.append)
    assert [what for what, _ in ways.here.asked] == ["a"]
    ways.here.answer((1,))
    ways.is_here = False
    ways.link.send(GROUP, put("b"), heard.append)
    assert [what for what, _ in ways.there.asked] == ["b"]
    ways.there.answer((2,))
    assert heard == [(1,), (2,)]


async def test_nothing_overtakes_what_is_unanswered_the_other_way() -> None:
    ways = Ways()
    heard: dict[str, object] = {}
    ways.is_here = False
    ways.link.send(GROUP, put("a"), partial(heard.__setitem__, "a"))
    ways.is_here = True
    for what in "bc":
        ways.link.send(GROUP, put(what), partial(heard.__setitem__, what))
    assert not ways.here.asked
    assert not heard
    await asyncio.sleep(0)
    assert sorted(heard) == ["b", "c"]
    for each in heard.values():
        assert isinstance(each, KernelError)
        assert each.code is Code.NOT_LEADER
    ways.link.send(GROUP, put("d"), partial(heard.__setitem__, "d"))
    assert [what for what, _ in ways.here.asked] == ["d"]
    ways.there.answer(("late",))
    assert heard["a"] == ("late",)


async def test_unanswered_requests_are_sent_again_in_the_old_order_when_the_leader_moves() -> None:
    ways = Ways()
    request_pipeline = RequestPipeline(ways.link, CLOCK, asyncio.get_running_loop())
    heard: list[object] = []
    for what in "ab":
        request_pipeline.send(GROUP, put(what), heard.append)
    ways.is_here = False
    request_pipeline.send(GROUP, put("c"), heard.append)
    async with asyncio.timeout(5):
        while len(ways.there.asked) < 3:
            await asyncio.sleep(0.001)
    assert [what for what, _ in ways.there.asked] == ["a", "b", "c"]
    ways.there.answer((1,))
    assert heard == [(1,)] * 3
    ways.here.answer((2,))
    assert heard == [(1,)] * 3


async def test_who_hears_of_a_timeout_may_send_something_else_at_once() -> None:
    ways, loop = Ways(), asyncio.get_running_loop()
    clock = SimulatedClock(cast("VirtualLoop", loop))
    request_pipeline = RequestPipeline(ways.link, clock, loop)
    heard: list[object] = []

    def late(result: object) -> None:
        heard.append(result)
        request_pipeline.send(GROUP, put("again"), heard.append)

    for what in "ab":
        request_pipeline.send(GROUP, put(what), late)
    clock.monotonic_ms = lambda: int(loop.time() * 1_000) + PUBLISH_DEADLINE_MS  # type: ignore[method-assign]
    ways.here.answer(KernelError(Code.NOT_LEADER, "it moved"))
    async with asyncio.timeout(5):
        while len(ways.here.asked) < 2:
            await asyncio.sleep(0.001)
    ways.here.answer((1,))
    assert len(heard) == 4
    assert heard[2:] == [(1,), (1,)]
