"""Messages on their way into the memory of another process, in order, each frame once.

    publish -> Link: numbered, kept until answered -> FRAME ~~~> Inbox: new? -> transient group
                                    answer          <~~~ DONE

A link outlives its connection: when the other process can be reached again, what it has not
answered is sent once more, and its inbox knows by the numbers what it has. It ends when the process
is given up; then everything unanswered fails.

Bounds: LINK_BYTES_MAX and LINK_FRAMES_MAX on their way to one process; one frame more is refused.

Durability: none. An answer says that the memory of the other process has the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...common.errors import Code, KernelError
from ...rpc.channel import Channel
from ...rpc.frame import MESSAGE_BYTES_MAX, RpcError
from . import mesh_wire as wire

LINK_BYTES_MAX = 16 * 1024 * 1024
"""Bytes on their way to one process: an eighth of a second of a gigabit link, and half of what a
connection takes (`rpc.channel.BULK_BYTES_MAX`)."""

LINK_FRAMES_MAX = 16_384
"""Frames of these: one has some 200 bytes beside its messages."""

FRAME_BYTES_MAX = MESSAGE_BYTES_MAX - 1024 * 1024
"""Slots of one frame, which has to fit into a message with its head."""

Heard = Callable[["KernelError | None"], None]
"""Told once what a frame came to; None: the other process has it."""


def _lost() -> KernelError:
    return KernelError(Code.UNAVAILABLE, "the process that holds the topic in memory is gone")


class _Frame:
    __slots__ = ("head", "heard", "size", "slots")

    def __init__(self, head: bytes, slots: Sequence[bytes], size: int, heard: Heard) -> None:
        self.head = head
        self.slots = slots
        self.size = size
        self.heard = heard


class MeshLink:
    """The sender's end."""

    def __init__(self, ident: int) -> None:
        """`ident`: a number by chance, of 63 bits."""
        self._ident = ident
        self._next = 1
        self._frames: dict[int, _Frame] = {}
        """Unanswered, oldest first."""
        self._heard = 0
        """All frames up to this one are answered."""
        self._channel: Channel | None = None
        self.bytes = 0
        """Of the slots on their way."""

    @property
    def frames(self) -> int:
        """Frames that are on their way."""
        return len(self._frames)

    @property
    def is_connected(self) -> bool:
        """Whether the other process can be reached."""
        return self._channel is not None

    def connected(self, channel: Channel) -> None:
        """The other process can be reached, for the first time or again."""
        self._channel = channel
        for number, frame in self._frames.items():
            self._tell(number, frame)

    def broken(self, channel: Channel) -> None:
        """It cannot be reached by this connection any more."""
        if self._channel is channel:
            self._channel = None

    def refusal(self, size: int) -> KernelError | None:
        """Why a frame of so many bytes cannot be taken now; None if it can."""
        if size > FRAME_BYTES_MAX:
            return KernelError(Code.TOO_LARGE, f"{size} bytes at once for another process")
        if self._frames and (
            self.bytes + size > LINK_BYTES_MAX or len(self._frames) >= LINK_FRAMES_MAX
        ):
            return KernelError(Code.BUSY, "too much is waiting for another process")
        return None

    def send(self, head: bytes, slots: Sequence[bytes], size: int, heard: Heard) -> None:
        """Send a frame that is not refused (hot)."""
        number = self._next
        self._next = number + 1
        frame = self._frames[number] = _Frame(head, slots, size, heard)
        self.bytes += size
        self._tell(number, frame)

    def _tell(self, number: int, frame: _Frame) -> None:
        channel = self._channel
        if channel is not None:
            parts = wire.encode_frame(self._ident, number, self._heard, frame.head, frame.slots)
            channel.tell(wire.FRAME, parts)

    def done(self, answer: wire.Done) -> None:
        """A frame has been answered."""
        frame = self._frames.pop(answer.number, None) if answer.link == self._ident else None
        if frame is not None:
            self.bytes -= frame.size
            while self._heard + 1 < self._next and self._heard + 1 not in self._frames:
                self._heard += 1
            frame.heard(wire.failure_of(answer))

    def over(self) -> None:
        """The process is given up."""
        self._channel = None
        frames, self._frames = self._frames, {}
        self.bytes = 0
        for frame in frames.values():
            frame.heard(_lost())


class LinkInbox:
    """The receiver's end of one link."""

    def __init__(self, link: int, first: int) -> None:
        """`first`: number of the frame that has come."""
        self.link = link
        self._last = first - 1
        self._open: set[int] = set()
        """Frames that are being carried out."""
        self._failed: dict[int, KernelError] = {}
        """Of those that the sender may not know the answer of."""
        self.channel: Channel | None = None
        """By which the sender can be answered."""

    def is_new(self, number: int, heard: int) -> bool:
        """Whether a frame has not come before; else it is answered once more. Raises RpcError."""
        for known in [each for each in self._failed if each <= heard]:
            del self._failed[known]
        if number > self._last + 1:
            raise RpcError(f"frame {number} of a link behind {self._last}")
        if number <= self._last:
            if number not in self._open:
                self._answer(number, self._failed.get(number))
            return False
        self._last = number
        self._open.add(number)
        return True

    def done(self, number: int, error: KernelError | None) -> None:
        """A frame has been carried out, or refused."""
        self._open.discard(number)
        if error is not None:
            self._failed[number] = error
        self._answer(number, error)

    def _answer(self, number: int, error: KernelError | None) -> None:
        if self.channel is not None:
            self.channel.tell(wire.DONE, wire.encode_done(self.link, number, error))
