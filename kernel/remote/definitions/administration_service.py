"""The store's side of administration: changes that gateways ask for, carried out here while this
store leads the group that decides them.

    ADMINISTER -> answered before?  the same answer      -> reply
               -> under way?        join it
               -> else              a task: Administrator -> answer kept -> reply

A gateway asks again, under the same identity, when it has not heard: so a task goes on when a
connection breaks, and its answer is kept for a while. After a change of leader another store does
not have that answer; then the deciding command finds its result in the group's state
(`Administrator`).

Bounds: RUNNING_MAX changes at once, beyond which BUSY; ANSWERS_MAX answers are kept.

Durability: an answer leaves once every command that the change needed is fdatasynced.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from ...api.client import Administration
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...in_process.opening import LocalStore
from ...requests.leader import Identity
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from . import administration_wire as wire
from .feed_service import FeedService

RUNNING_MAX = 1_024
"""Changes under way: each a task and its commands, some 10 KB."""

ANSWERS_MAX = 1_024
"""Answers kept for a gateway that has not heard them: some 2 KB each. It asks again within seconds,
while so many take longer to be made."""


class AdministrationFigures:
    """Counters since this process began."""

    __slots__ = ("asked", "over_running", "repeated")

    def __init__(self) -> None:
        self.asked = 0
        """Changes begun."""
        self.repeated = 0
        """Questions asked again, while their change was under way or after it."""
        self.over_running = 0
        """Refused at RUNNING_MAX."""


class AdministrationService:
    """Carries out changes of definitions that gateways ask for (`sections.Section`)."""

    methods = calls.ADMINISTRATION

    def __init__(
        self, local: LocalStore, feeds: FeedService, *, running_max: int = RUNNING_MAX
    ) -> None:
        self._store = local.store
        self._client = local.client
        self._feeds = feeds
        self._loop = asyncio.get_running_loop()
        self._running_max = running_max
        self._running: dict[Identity, list[Reply]] = {}
        """Who waits for each change under way."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: OrderedDict[Identity, list[bytes]] = OrderedDict()
        self.figures = AdministrationFigures()

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come: it asks when it wants something."""

    def closed(self, channel: Channel) -> None:
        """It is gone; what it has asked for is carried out, and answered if it asks again."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Changes are asked for."""
        raise RpcError(f"method {method} is not told to stores")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """An ADMINISTER has come: it is carried out once, and a repeat gets the same answer."""
        if method != wire.ADMINISTER:
            raise RpcError(f"method {method} is not called")
        try:
            group, identity, change = wire.decode_question(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        if identity in self._answers:
            self.figures.repeated += 1
            reply(self._answers[identity])
        elif identity in self._running:
            self.figures.repeated += 1
            self._running[identity].append(reply)
        else:
            refusal = self._refusal(group, change)
            if refusal is not None:
                reply(refusal)
                return
            self.figures.asked += 1
            self._running[identity] = [reply]
            task = self._loop.create_task(self._carry_out(identity, change))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _refusal(self, group: RaftGroup, change: Administration) -> KernelError | None:
        if group not in self._store.groups or self._store.serving(group) is None:
            leads = self._store.standing(group)[1] if group in self._store.groups else 0
            return KernelError(Code.NOT_LEADER, f"this node does not serve group {group}", leads)
        if group != wire.decides(self._store.home_groups, change):
            return KernelError(Code.INVALID_ARGUMENT, f"group {group} does not decide the change")
        if self._client.is_draining:
            return KernelError(Code.NOT_LEADER, "this node is about to stop")
        if len(self._running) >= self._running_max:
            self.figures.over_running += 1
            return KernelError(Code.BUSY, f"{self._running_max} changes are under way")
        return None

    # --- Carrying out -----------------------------------------------------------------------

    async def _carry_out(self, identity: Identity, change: Administration) -> None:
        try:
            result, touched = await self._client.administer_for(identity, change)
        except KernelError as error:
            for reply in self._running.pop(identity):
                reply(error)
            return
        waiting = self._running.pop(identity)
        answer = wire.encode_answer({**touched, **self._indexes()}, result)
        self._answers[identity] = answer
        if len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        for reply in waiting:
            reply(answer)

    def _indexes(self) -> dict[RaftGroup, int]:
        """What the feeds of the groups that are led here will tell in any case."""
        serving = self._store.serving
        return {
            group: self._feeds.defined(group)
            for group in self._store.groups
            if serving(group) is not None
        }
