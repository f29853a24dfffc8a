"""One other process, as whoever was told by it knows it (`remote_memory`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...api.model import Route, RouterOptions, TopicInfo
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...routing.destinations import Found
from ...rpc.channel import Channel
from . import mesh_wire as wire
from .link import MeshLink
from .remote_memory_leader import RemoteMemoryLeader

ASK_MS = 10_000
"""A question to another process ends so long after it was asked."""

Process = tuple[int, str]
"""(number of its node, id of its data directory or of the process)."""

Key = tuple[str, str, str] | tuple[str, str, str, Route]
"""("topic" or "router", tenant, name), ("route", tenant, router, route), or ("watch", tenant,
pattern)."""


class RemoteMemoryFigures:
    """Counters since this process began."""

    __slots__ = ("announced", "gone", "live_dropped", "refused")

    def __init__(self) -> None:
        self.announced = 0
        """Things told."""
        self.refused = 0
        """Frames refused at LINK_BYTES_MAX or LINK_FRAMES_MAX, or for a process that is gone."""
        self.live_dropped = 0
        """Messages for live routes, of these."""
        self.gone = 0
        """Processes given up."""

    def frame_refused(self) -> None:
        """One more."""
        self.refused += 1


class RemoteProcess:
    """A process that has told what lives in its memory. `destinations.Forwarder` of its live
    routes.
    """

    __slots__ = (
        "_figures",
        "_is_over",
        "channel",
        "group",
        "known",
        "leader",
        "link",
        "lost_ms",
        "process",
        "serves_streams",
        "untold",
    )

    def __init__(
        self, process: Process, group: RaftGroup, link: MeshLink, figures: RemoteMemoryFigures
    ) -> None:
        self._figures = figures
        self._is_over = False
        self.process = process
        self.group = group
        self.link = link
        self.channel: Channel | None = None
        self.serves_streams = False
        """Whether it can be consumed from: not where one of both speaks version 1."""
        self.lost_ms: int | None = None
        """Since when it cannot be reached."""
        self.known: dict[Key, TopicInfo | RouterOptions | None] = {}
        self.untold: dict[Key, None] | None = None
        """While everything is told anew: what was known before and has not been told again."""
        self.leader = RemoteMemoryLeader(group, link, self.ask, figures.frame_refused)

    def over(self) -> None:
        """It is given up: what is on its way fails, and nothing is carried on to it any more."""
        self._is_over = True
        self.link.over()

    def forward(self, messages: Sequence[tuple[Found, bytes]]) -> None:
        """Have it hand slots to its live routes; nobody waits for that. What finds no room on the
        way is dropped, as for any subscriber of memory that cannot keep up.
        """
        if self._is_over:
            return
        live: list[tuple[str, str, int, int]] = []
        lengths: list[int] = []
        last: Found | None = None
        for found, slot in messages:
            if found is last:
                tenant, name, first, count = live[-1]
                live[-1] = tenant, name, first, count + 1
            else:
                live.append((found.tenant, found.tree_name, len(lengths), 1))
                last = found
            lengths.append(len(slot))
        size = sum(lengths)
        if self.link.refusal(size) is not None:
            self._figures.frame_refused()
            self._figures.live_dropped += len(lengths)
            return
        head = wire.encode_messages((), live, lengths, 0)
        self.link.send(head, [slot for _, slot in messages], size, _nobody_waits)

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


def _nobody_waits(_error: KernelError | None) -> None:
    """What a frame for live routes came to."""


class _NoLink(MeshLink):
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
