"""Two channels and a wire between them that the test works by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel.common.errors import KernelError
from kernel.rpc.channel import Channel, Reply
from kernel.rpc.handshake import VERSIONS, Admit, Hello

SECRET = b"what only members know"


def hello(node: int, **others: object) -> Hello:
    values: dict[str, object] = {
        "versions": VERSIONS,
        "cluster": "c1",
        "node": node,
        "store": f"store-{node}",
        "role": "store",
        "address": f"127.0.0.1:740{node}",
        "nonce": bytes([node]) * 16,
    }
    return Hello(**{**values, **others})  # type: ignore[arg-type]


@dataclass
class Notes:
    """`channel.Handler` that notes everything, and answers with the payload reversed."""

    opened_by: list[Hello] = field(default_factory=list)
    calls: list[tuple[int, bytes]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    told_of: list[tuple[int, bytes]] = field(default_factory=list)
    closed_for: list[str] = field(default_factory=list)
    answers_at_once: bool = True

    def opened(self, channel: Channel, peer: Hello) -> None:
        self.opened_by.append(peer)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        self.calls.append((method, payload))
        if self.answers_at_once:
            reply([payload[::-1]])
        else:
            self.replies.append(reply)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        self.told_of.append((method, payload))

    def closed(self, channel: Channel, reason: str) -> None:
        self.closed_for.append(reason)


def anybody(_hello: Hello) -> str | None:
    return None


class Pair:
    """A dialer (node 1) and an acceptor (node 2)."""

    def __init__(
        self,
        *,
        secrets: Sequence[bytes] = (SECRET, SECRET),
        admit: Admit = anybody,
        hellos: tuple[Hello, Hello] | None = None,
    ) -> None:
        self.now_ms = 1_000
        self.notes = Notes(), Notes()
        hellos = hellos or (hello(1), hello(2))
        self.ends = tuple(
            Channel(
                hellos[at],
                secrets[at],
                admit if at else anybody,
                self.notes[at],
                lambda: None,
                self.now_ms,
                is_dialer=not at,
            )
            for at in (0, 1)
        )
        self.answers: list[bytes | KernelError] = []

    @property
    def dialer(self) -> Channel:
        return self.ends[0]

    @property
    def acceptor(self) -> Channel:
        return self.ends[1]

    def start(self) -> Pair:
        for end in self.ends:
            end.start()
        return self.carry()

    def carry(self, chunk: int = 1 << 30) -> Pair:
        """Carry bytes both ways, in pieces of `chunk`, until none are left."""
        while any(end.has_output for end in self.ends):
            for at, end in enumerate(self.ends):
                data = b"".join(end.take(1 << 20))
                for start in range(0, len(data), chunk):
                    self.ends[1 - at].receive(data[start : start + chunk], self.now_ms)
        return self

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for end in self.ends:
            end.tick(self.now_ms)

    def call(self, payload: bytes, timeout_ms: int = 1_000) -> None:
        self.dialer.call(7, [payload], self.answers.append, timeout_ms)
