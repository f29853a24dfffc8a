"""The gateway's side of lists that have nothing in them: who waits for which, at whoever leads.

What is new is said when the turn is over, all of it in one question of each group; a leader that
has changed, or whose connection has, is told everything again. A question that nobody answers is
asked again for as long as somebody waits.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...common.errors import KernelError
from ...common.ids import QueueId, RaftGroup
from ..leader_calls.call_wire import decode
from ..leader_calls.leaders import RemoteLeaders
from . import tree_wire as wire

PAUSE_SECONDS = 0.1
"""Before a group is asked again whose leader did not answer in time."""


class WaitPart(Protocol):
    """Who waits for the lists of one subscription."""

    def filled(self, group: RaftGroup, queue: QueueId) -> None:
        """A list has something: it is waited for no more."""


class _Group:
    """What one Raft group is waited for."""

    __slots__ = ("gone", "number", "task", "unsaid", "waiting")

    def __init__(self, number: RaftGroup) -> None:
        self.number = number
        self.waiting: dict[wire.Key, WaitPart | dict[WaitPart, None]] = {}
        """A reader of its own has one part, which stands here without a dictionary."""
        self.unsaid: dict[wire.Key, None] = {}
        self.gone: list[wire.Key] = []
        self.task: asyncio.Task[None] | None = None


class ListWaits:
    """The lists that subscribers of this gateway wait for."""

    def __init__(self, leaders: RemoteLeaders) -> None:
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._groups: dict[RaftGroup, _Group] = {}

    async def stop(self) -> None:
        """Ask nothing more."""
        tasks = [each.task for each in self._groups.values() if each.task is not None]
        self._groups.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        """Readers that wait, over all groups."""
        return sum(len(each.waiting) for each in self._groups.values())

    def add(self, number: RaftGroup, key: wire.Key, part: WaitPart) -> None:
        """Have `part` told once the list of a reader in a group has something."""
        group = self._groups.setdefault(number, _Group(number))
        known = group.waiting.get(key)
        if known is None:
            group.waiting[key] = part
        elif isinstance(known, dict):
            known[part] = None
        else:
            group.waiting[key] = {known: None, part: None}
        group.unsaid[key] = None
        self._say(group)

    def remove(self, number: RaftGroup, key: wire.Key, part: WaitPart) -> None:
        """It waits no more. Idempotent."""
        group = self._groups.get(number)
        known = group.waiting.get(key) if group is not None else None
        if group is None or known is None:
            return
        if isinstance(known, dict):
            known.pop(part, None)
            if known:
                return
        elif known is not part:
            return
        del group.waiting[key]
        if key in group.unsaid:
            del group.unsaid[key]
            return
        if not group.gone:
            self._loop.call_soon(self._forget, group)
        group.gone.append(key)

    def _forget(self, group: _Group) -> None:
        gone, group.gone = [each for each in group.gone if each not in group.waiting], []
        channel = self._leaders.channel_to(group.number)
        for start in range(0, len(gone) if channel is not None else 0, wire.WAIT_MAX):
            assert channel is not None
            forget = wire.Wait(group.number, gone[start : start + wire.WAIT_MAX])
            channel.cast(wire.FORGET, wire.encode(forget), control=True)

    def leader_changed(self, number: RaftGroup) -> None:
        """Somebody else leads, or by another connection: it knows nothing of this gateway."""
        group = self._groups.get(number)
        if group is not None and group.waiting:
            group.unsaid = dict.fromkeys(group.waiting)
            self._say(group)

    def filled(self, number: RaftGroup, key: wire.Key, queue: QueueId) -> None:
        """A list has something."""
        group = self._groups.get(number)
        known = group.waiting.pop(key, None) if group is not None else None
        if group is None or known is None:
            return
        group.unsaid.pop(key, None)
        for part in known if isinstance(known, dict) else (known,):
            part.filled(number, queue)

    def _say(self, group: _Group) -> None:
        if group.task is None:
            group.task = self._loop.create_task(self._ask(group))

    async def _ask(self, group: _Group) -> None:
        try:
            while group.unsaid:
                keys = list(group.unsaid)[: wire.WAIT_MAX]
                for key in keys:
                    del group.unsaid[key]
                parts = wire.encode(wire.Wait(group.number, keys))
                try:
                    found = await self._leaders.ask(group.number, wire.WAIT, parts, _places)
                except KernelError:
                    group.unsaid.update((key, None) for key in keys if key in group.waiting)
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                for place, queue in found:
                    if place < len(keys):
                        self.filled(group.number, keys[place], QueueId(queue))
        finally:
            group.task = None


def _places(payload: bytes) -> list[tuple[int, int]]:
    return decode(wire.places, payload)
