"""One connection between two processes of a cluster, without the bytes' transport: calls, answers,
messages without answer, and what happens to them when it breaks.

Bytes in by `receive`, bytes out by `take`, time by `tick`. Answers come in any order. What is
queued is bounded: `cast` says no when BULK_BYTES_MAX wait (a leader then sends again later, as if
the message had been lost), and a call is refused with BUSY. Control frames go ahead of all others.

A call whose connection breaks ends with UNKNOWN_OUTCOME if any of it may have left, else with
NOT_LEADER, which the request pipeline takes for "not executed".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ..common.errors import Code, KernelError, error_named
from .frame import MESSAGE_BYTES_MAX, Frame, FrameReader, RpcError, RpcFrameKind, encode
from .handshake import HELLO_BYTES_MAX, Admit, Handshake, Hello, State

BULK_BYTES_MAX = 32 * 1024 * 1024
"""Bytes queued in one direction of a connection: a quarter second of a gigabit link."""

CALLS_MAX = 65_536
"""Calls of one connection that wait for an answer."""

HANDSHAKE_MS = 5_000
PING_MS = 1_000
"""A connection on which nothing was sent for so long sends a ping."""

SILENT_MS = 5_000
"""A connection on which nothing came for so long is taken for broken."""

Answer = Callable[["bytes | KernelError"], None]
"""Hears the answer of a call."""

Reply = Callable[["Sequence[bytes] | KernelError"], None]
"""Answers a call; may be called later, once."""

_HINT_DIGITS_MAX = 10
"""Of a node's number, a u32."""

_CALL, _CAST, _ANSWER = int(RpcFrameKind.CALL), int(RpcFrameKind.CAST), int(RpcFrameKind.ANSWER)
_ANSWERS = frozenset((_ANSWER, int(RpcFrameKind.ERROR)))


class Handler(Protocol):
    """What stands behind a channel."""

    def opened(self, channel: Channel, peer: Hello) -> None:
        """The handshake is done."""

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A call of the other end. RpcError closes the connection."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A message that wants no answer. RpcError closes the connection."""

    def closed(self, channel: Channel, reason: str) -> None:
        """Nothing comes any more. Told once, also if it was never opened."""


class _Call:
    __slots__ = ("answer", "deadline_ms", "left")

    def __init__(self, answer: Answer, deadline_ms: int) -> None:
        self.answer = answer
        self.deadline_ms = deadline_ms
        self.left = False
        """Some of it has been taken to be written."""


class Channel:
    """One end of a connection between two processes."""

    def __init__(
        self,
        own: Hello,
        secret: bytes,
        admit: Admit,
        handler: Handler,
        wake: Callable[[], None],
        now_ms: int,
        *,
        is_dialer: bool,
    ) -> None:
        """`wake` is called when there is something to `take`. Times are monotonic."""
        self.handler = handler
        """Hears of everything; one that knows what the other end is may put another in its place
        (`roles`)."""
        self._wake = wake
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._handshake = Handshake(own, secret, admit, self._shake, is_dialer=is_dialer)
        self._control: deque[list[bytes]] = deque()
        self._bulk: deque[tuple[_Call | None, list[bytes]]] = deque()
        self._bulk_bytes = 0
        self._before: list[Callable[[], None]] = []
        """Called before the next `take`: what they queue goes out with the rest."""
        self.bytes_moved = 0
        """In, and out without the control lane."""
        self._calls: dict[int, _Call] = {}
        self._next_call = 1
        self._began_ms = self._heard_ms = self._sent_ms = self._now_ms = now_ms
        self.is_closed = False
        self.was_open = False
        self.reason = ""
        """Why it is closed."""

    # --- Life -------------------------------------------------------------------------------

    def start(self) -> None:
        """The transport is there."""
        self._handshake.start()

    @property
    def is_open(self) -> bool:
        """Whether the other end is known, and the connection alive."""
        return self.was_open and not self.is_closed

    @property
    def was_refused(self) -> bool:
        """Whether one end has not let the other in."""
        return self._handshake.state is State.REFUSED

    @property
    def was_turned_away(self) -> bool:
        """Whether the other end has not let this one in."""
        return self._handshake.was_turned_away

    @property
    def peer(self) -> Hello:
        """Who is at the other end of an open channel."""
        assert self._handshake.peer is not None
        return self._handshake.peer

    @property
    def version(self) -> int:
        """Of the protocol, that both ends speak."""
        return self._handshake.version

    def close(self, reason: str) -> None:
        """Say goodbye; what is queued before it still goes out."""
        if self.is_open:
            self._put_control(RpcFrameKind.GOODBYE, 0, 0, [reason.encode()])
        self.broken(reason)

    def broken(self, reason: str) -> None:
        """The transport is gone, or is to be closed: every call ends."""
        if self.is_closed:
            return
        self.is_closed = True
        self.reason = reason
        calls, self._calls = self._calls, {}
        try:
            for call in calls.values():
                code = Code.UNKNOWN_OUTCOME if call.left else Code.NOT_LEADER
                call.answer(KernelError(code, f"the connection has broken: {reason}"))
        finally:
            self.handler.closed(self, reason)

    def tick(self, now_ms: int) -> None:
        """Time has passed: end what is late, ping, notice silence."""
        self._now_ms = now_ms
        if self.is_closed:
            return
        if not self.is_open:
            if now_ms - self._began_ms > HANDSHAKE_MS:
                self.broken(f"no handshake within {HANDSHAKE_MS} ms")
            return
        if now_ms - self._heard_ms > SILENT_MS:
            self.broken(f"silent for {SILENT_MS} ms")
            return
        if now_ms - self._sent_ms >= PING_MS:
            self._put_control(RpcFrameKind.PING, 0, 0, [])
        late = [number for number, call in self._calls.items() if call.deadline_ms <= now_ms]
        for number in late:
            late_error = KernelError(Code.TIMEOUT, "no answer within the deadline")
            self._calls.pop(number).answer(late_error)

    # --- Sending ----------------------------------------------------------------------------

    def call(self, method: int, parts: Sequence[bytes], answer: Answer, timeout_ms: int) -> int:
        """Call a method of the other end; `answer` hears of it once, never from inside. Returns the
        number of the call. KernelError NOT_LEADER (not open), BUSY.
        """
        if not self.is_open:
            raise KernelError(Code.NOT_LEADER, "not connected")
        if len(self._calls) >= CALLS_MAX or not self._has_room(parts):
            raise KernelError(Code.BUSY, "too much is waiting for another node")
        number = self._next_call
        self._next_call = number % 0xFFFF_FFFF + 1
        call = self._calls[number] = _Call(answer, self._now_ms + timeout_ms)
        self._put_bulk(call, _CALL, method, number, parts)
        return number

    def cast(self, method: int, parts: Sequence[bytes], *, control: bool = False) -> bool:
        """Tell the other end something; False if it cannot be taken now."""
        if not self.is_open:
            return False
        if control:
            self._put_control(RpcFrameKind.CAST, method, 0, parts)
            return True
        if not self._has_room(parts):
            return False
        self._put_bulk(None, RpcFrameKind.CAST, method, 0, parts)
        return True

    def tell(self, method: int, parts: Sequence[bytes]) -> None:
        """`cast`, behind everything that waits, and never refused: for messages whose number is
        bounded by what the other end has asked for.
        """
        if self.is_open:
            self._put_bulk(None, RpcFrameKind.CAST, method, 0, parts)

    def before_take(self, action: Callable[[], None]) -> None:
        """Have `action` called once before what is queued is taken to be written, which is soon:
        so that what a turn of the loop has gathered leaves with what else it has brought.
        """
        if self.is_open:
            self._before.append(action)
            self._wake()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be written, but for those ahead of all others."""
        return self._bulk_bytes

    def _has_room(self, parts: Sequence[bytes]) -> bool:
        return not self._bulk_bytes or (self._bulk_bytes + sum(map(len, parts)) <= BULK_BYTES_MAX)

    def _shake(self, kind: RpcFrameKind, payload: bytes) -> None:
        self._put_control(kind, 0, 0, [payload])

    def _put_control(self, kind: int, method: int, call: int, parts: Sequence[bytes]) -> None:
        self._control.extend(encode(kind, method, call, parts, control=True))
        self._wake()

    def _put_bulk(
        self, owner: _Call | None, kind: int, method: int, call: int, parts: Sequence[bytes]
    ) -> None:
        for buffers in encode(kind, method, call, parts, control=False):
            self._bulk.append((owner, buffers))
            self._bulk_bytes += sum(map(len, buffers))
        self._wake()

    @property
    def has_output(self) -> bool:
        """Whether `take` would bring anything."""
        return bool(self._control or self._bulk or self._before)

    def take(self, bytes_max: int) -> list[bytes]:
        """Buffers to be written now: all of the control lane, then of the other until about so
        many bytes.
        """
        while self._before:
            before, self._before = self._before, []
            for action in before:
                action()
        buffers: list[bytes] = []
        while self._control:
            buffers += self._control.popleft()
        size = 0
        while self._bulk and size < bytes_max:
            owner, pieces = self._bulk.popleft()
            if owner is not None:
                owner.left = True
            length = sum(map(len, pieces))
            size += length
            self._bulk_bytes -= length
            buffers += pieces
        if buffers:
            self._sent_ms = self._now_ms
            self.bytes_moved += size
        return buffers

    # --- Receiving --------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: int) -> None:
        """Bytes of the other end. Never raises: what is wrong with them closes the channel."""
        self._heard_ms = self._now_ms = now_ms
        self.bytes_moved += len(data)
        try:
            for frame in self._reader.feed(data):
                if self.is_closed:
                    return
                if self.was_open:
                    self._take_in(frame)
                else:
                    self._handshake.receive(frame)
                    self._open()
        except RpcError as error:
            self.broken(str(error))

    def _open(self) -> None:
        if self._handshake.is_open:
            self.was_open = True
            self._reader.bytes_max = MESSAGE_BYTES_MAX
            self.handler.opened(self, self.peer)

    def _take_in(self, frame: Frame) -> None:
        kind, method, number, payload = frame
        if kind == _CAST:
            self.handler.told(self, method, payload)
        elif kind == _CALL:
            self.handler.called(self, method, payload, _Reply(self, number))
        elif kind in _ANSWERS:
            call = self._calls.pop(number, None)
            if call is not None:  # else it was late
                call.answer(payload if kind == _ANSWER else decode_error(payload))
        elif kind == RpcFrameKind.PING:
            self._put_control(RpcFrameKind.PONG, 0, 0, [])
        elif kind == RpcFrameKind.GOODBYE:
            self.broken(f"the other end has said goodbye: {payload.decode('utf-8', 'replace')}")
        elif kind != RpcFrameKind.PONG:
            raise RpcError(f"a frame of kind {kind} on an open connection")

    def reply(self, call: int, result: Sequence[bytes] | KernelError) -> None:
        """Answer a call. Answers are never refused for want of room: their number is bounded by
        the other end's calls.
        """
        if self.is_closed:
            return
        if isinstance(result, KernelError):
            self._put_bulk(None, RpcFrameKind.ERROR, 0, call, [encode_error(result)])
        else:
            self._put_bulk(None, _ANSWER, 0, call, result)


class _Reply:
    """`Reply` of one call."""

    __slots__ = ("_call", "_channel")

    def __init__(self, channel: Channel, call: int) -> None:
        self._channel = channel
        self._call = call

    def __call__(self, result: Sequence[bytes] | KernelError) -> None:
        self._channel.reply(self._call, result)


def encode_error(error: KernelError) -> bytes:
    """An error as it travels: its code's name on the wire, the number of the node to ask instead
    if it names one, a line end, its sentence.
    """
    hint = f" {error.hint}" if error.hint else ""
    return f"{error.code.wire}{hint}\n{error.message}".encode()


def decode_error(payload: bytes) -> KernelError:
    """The error of these bytes; one of an unknown code is UNAVAILABLE."""
    head, _, message = payload.decode("utf-8", "replace").partition("\n")
    name, _, number = head.partition(" ")
    is_hint = len(number) <= _HINT_DIGITS_MAX and number.isascii() and number.isdigit()
    hint = int(number) if is_hint else 0
    return error_named(name, message, hint)
