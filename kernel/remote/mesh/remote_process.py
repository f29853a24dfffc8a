"""One other process, as whoever was told by it knows it (`remote_memory`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...api.model import QueueRef, Route, RouterOptions, TopicInfo
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup, queue_in, topic_in
from ...rpc.channel import Channel
from .link import Link
from .remote_memory_leader import RemoteMemoryLeader

ASK_MS = 10_000
"""A question to another process ends so long after it was asked."""

Process = tuple[int, str]
"""(number of its node, id of its data directory or of the process)."""

Key = tuple[str, str, str] | tuple[str, str, str, Route]
"""("topic" or "router", tenant, name), ("route", tenant, router, route), or ("watch", tenant,
pattern)."""


class RemoteProcess:
    """A process that has told what lives in its memory."""

    __slots__ = ("channel", "group", "known", "leader", "link", "lost_ms", "process", "untold")

    def __init__(
        self, process: Process, group: RaftGroup, link: Link, refused: Callable[[], None]
    ) -> None:
        self.process = process
        self.group = group
        self.link = link
        self.channel: Channel | None = None
        self.lost_ms: int | None = None
        """Since when it cannot be reached."""
        self.known: dict[Key, TopicInfo | RouterOptions | None] = {}
        self.untold: dict[Key, None] | None = None
        """While everything is told anew: what was known before and has not been told again."""
        self.leader = RemoteMemoryLeader(group, link, self.ask, refused)

    def ask(
        self, method: int, parts: Sequence[bytes], timeout_ms: int = ASK_MS
    ) -> asyncio.Future[bytes]:
        """The answer of the process. Raises KernelError: what it answers, UNAVAILABLE."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(answer: bytes | KernelError) -> None:
            if future.done():
                return
            if isinstance(answer, KernelError):
                if answer.code in (Code.NOT_LEADER, Code.UNKNOWN_OUTCOME, Code.TIMEOUT):
                    answer = KernelError(Code.UNAVAILABLE, "the other gateway has not answered")
                future.set_exception(answer)
            else:
                future.set_result(answer)

        if self.channel is None:
            answered(KernelError(Code.UNAVAILABLE, "the other gateway cannot be reached now"))
            return future
        try:
            self.channel.call(method, parts, answered, timeout_ms)
        except KernelError as error:
            answered(error)
        return future


def as_here(topic: TopicInfo, group: RaftGroup) -> TopicInfo:
    """A topic of another process, with ids of its pseudo-group."""
    queues = tuple(QueueRef(queue_in(group, each.id), group) for each in topic.queues)
    ident = topic_in(group, topic.id)
    return TopicInfo(
        *(topic.tenant, topic.name, ident, topic.version, topic.options, queues, topic.groups)
    )


class _NoLink(Link):
    """To a process that is gone."""

    def refusal(self, size: int) -> KernelError:
        """Everything is refused."""
        return KernelError(Code.UNAVAILABLE, "the process that held the topic in memory is gone")


def gone_leader(group: RaftGroup, refused: Callable[[], None]) -> RemoteMemoryLeader:
    """The leader of a pseudo-group whose process is gone."""
    return RemoteMemoryLeader(group, _NoLink(0), _no_answer, refused)


def _no_answer(_method: int, _parts: Sequence[bytes]) -> asyncio.Future[bytes]:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.set_exception(KernelError(Code.NOT_FOUND, "the process that held it is gone"))
    return future
