"""The asking side of administration: changes of what is durable, made by leaders far away.

    administer -> question to the leader of the group that decides -> answer: (indexes, result)
               -> the mirrors (of a store: its replicas) have reached these indexes -> return

So a look-up after an awaited change sees it, in this process as in that of the leader; also after a
refusal, which may speak of what another gateway has just made.

A question is asked again when its leader changes or its connection breaks, under the same identity:
the deciding command is executed once (docs/design/delivery.md#publish).

Durability: an answer leaves the leader once every command that the change needed is fdatasynced by
a majority of the group it belongs to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...api.changes import Administration, PutRecord, name_of
from ...api.model import TopicInfo
from ...common.errors import KernelError
from ...common.ids import RaftGroup
from ...common.limits import PUBLISH_DEADLINE_MS
from ...definitions import definition_checks as checks
from ...requests.leader import Identity
from ..leader_calls.leaders import RemoteLeaders
from . import administration_wire as wire

ADMINISTER_MS = PUBLISH_DEADLINE_MS
"""A change that is not answered within so long ends with UNAVAILABLE, and is made or not: the same
patience as for a message."""


class Administering:
    """Makes changes that are not local."""

    def __init__(
        self,
        leaders: RemoteLeaders,
        reached: Callable[[Mapping[RaftGroup, int]], Awaitable[None]],
        groups: Sequence[RaftGroup],
        client: int,
        known: Callable[[TopicInfo], TopicInfo | None],
    ) -> None:
        """`reached` returns once look-ups of this process show what groups have applied up to these
        indexes; `groups`: those that names have their home in; `client`: a number by chance, of 63
        bits, that nobody else has: not that of this process's batches, which would push results
        out. `known` looks a topic up.
        """
        self._leaders = leaders
        self._reached = reached
        self._known = known
        self._groups = list(groups)
        self._client = client
        self._sequence = 0

    def next_identity(self) -> Identity:
        """Under which the next change is made once."""
        self._sequence += 1
        return self._client, 1, self._sequence

    async def administer(self, change: Administration, identity: Identity | None = None) -> object:
        """Make a change (see its docstring for the result and the errors), which has perhaps been
        asked for under this identity before. Also raises KernelError
        UNAVAILABLE: no leader has answered, and whether it is made is not known.
        """
        if not isinstance(change, PutRecord):
            checks.check_name(change.tenant, name_of(change))
        group = wire.decides(self._groups, change)
        question = wire.encode_question(group, identity or self.next_identity(), change)
        indexes, result = await self._leaders.ask(
            group, wire.ADMINISTER, question, wire.decode_answer, question_ms=ADMINISTER_MS
        )
        await self._reached(indexes)
        if isinstance(result, KernelError):
            raise result
        return self._as_known(result)

    def _as_known(self, result: object) -> object:
        """The object that look-ups give, if it is equal: adapters compare by identity."""
        known = self._known(result) if isinstance(result, TopicInfo) else None
        return known if known is not None and known == result else result
