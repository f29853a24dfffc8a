"""How two processes of a cluster get to know each other, before anything else is said.

    dialer                                acceptor
      HELLO  versions, who, nonce  ---->
             <----  HELLO  versions, who, nonce
      PROOF  ------------------------->   checks it, then whether that node may join
             <----  PROOF  (or REFUSED with the reason, and the connection is closed)
      checks it: open

A proof is HMAC-SHA-256 under the cluster's secret over the side and both hellos as they came, so
that it cannot be replayed, reflected or taken for another connection's. With mutual TLS the secret
may be empty: then the certificates have proved who is there, and the proof only that both mean the
same hellos.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import Enum
from hashlib import sha256

import msgspec

from ..common.errors import UNDECODABLE
from .frame import Frame, RpcError, RpcFrameKind

VERSIONS = (1, 4)
"""Lowest and highest version of this protocol that this build speaks. 2: gateways consume from each
other's memory by push streams (docs/adr/0025). 3: they ask each other questions (docs/adr/0012). 4:
stores list subscribers of the topic tree."""

HELLO_BYTES_MAX = 4_096
"""Of a message before the other end is known."""

NONCE_BYTES = 16

_DIALER = b"weir rpc dialer"
_ACCEPTOR = b"weir rpc acceptor"


class Hello(msgspec.Struct, frozen=True):
    """What a process says of itself when it connects."""

    versions: tuple[int, int]
    cluster: str
    """Id of the cluster; empty: not a member of one yet."""
    node: int
    """Number of the node in it; 0: not a member yet."""
    store: str
    """Id of its data directory, of a store: new whenever the directory is (KIP-853)."""
    role: str
    address: str
    """Where it can be reached, as others are to know it; empty: nowhere."""
    nonce: bytes
    understands: int = 0
    """The level up to which it understands the log's features; builds from before there were any do
    not say.
    """
    timeline: str = ""
    """Of a store that was restored from a backup: all that were restored together have the same."""


class State(Enum):
    """How far a handshake has come."""

    HELLO = "awaiting hello"
    PROOF = "awaiting proof"
    OPEN = "open"
    REFUSED = "refused"


Admit = Callable[[Hello], str | None]
"""Why a node may not connect; None if it may."""

Send = Callable[[RpcFrameKind, bytes], None]


class Handshake:
    """One side of a handshake."""

    def __init__(
        self, own: Hello, secret: bytes, admit: Admit, send: Send, *, is_dialer: bool
    ) -> None:
        if len(own.nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
        self._own = msgspec.msgpack.encode(own)
        self._versions = own.versions
        self._secret = secret
        self._admit = admit
        self._send = send
        self._is_dialer = is_dialer
        self._other = b""
        self.state = State.HELLO
        self.peer: Hello | None = None
        """Who is at the other end; to be believed once the state is OPEN."""
        self.version = 0
        self.was_turned_away = False
        """Whether it is the other end that does not want this one."""

    @property
    def is_open(self) -> bool:
        """Whether both ends have proved themselves."""
        return self.state is State.OPEN

    def start(self) -> None:
        """The connection is there."""
        if self._is_dialer:
            self._send(RpcFrameKind.HELLO, self._own)

    def receive(self, frame: Frame) -> None:
        """A frame has come before the connection is open. RpcError: close it; what the other end
        should hear of it has been sent.
        """
        if frame.kind == RpcFrameKind.REFUSED:
            self.state = State.REFUSED
            self.was_turned_away = True
            raise RpcError(f"refused by the other end: {readable(frame.payload)}")
        step = _STEPS.get((self.state, frame.kind))
        if step is None:
            raise RpcError(f"a frame of kind {frame.kind} while {self.state.value}")
        step(self, frame.payload)

    def _hello(self, payload: bytes) -> None:
        try:
            peer = msgspec.msgpack.decode(payload, type=Hello)
        except UNDECODABLE as error:
            raise RpcError(f"no hello: {error}") from None
        if len(peer.nonce) != NONCE_BYTES:
            raise RpcError("a hello without a nonce")
        lowest, highest = self._versions
        version = min(highest, peer.versions[1])
        if version < max(lowest, peer.versions[0]):
            spoken = f"this build speaks {self._versions}"
            self._refuse(f"versions {peer.versions} of the protocol; {spoken}")
        self.version = version
        self._other = payload
        self.peer = peer
        self.state = State.PROOF
        if self._is_dialer:
            self._send(RpcFrameKind.PROOF, self._proof(_DIALER))
        else:
            self._send(RpcFrameKind.HELLO, self._own)

    def _check(self, payload: bytes) -> None:
        expected = self._proof(_ACCEPTOR if self._is_dialer else _DIALER)
        if not hmac.compare_digest(payload, expected):
            self._refuse("the cluster's secret is not the same here and there")
        assert self.peer is not None
        reason = self._admit(self.peer)
        if reason is not None:
            self._refuse(reason)
        if not self._is_dialer:
            self._send(RpcFrameKind.PROOF, self._proof(_ACCEPTOR))
        self.state = State.OPEN

    def _proof(self, side: bytes) -> bytes:
        dialer, acceptor = self._own, self._other
        if not self._is_dialer:
            dialer, acceptor = acceptor, dialer
        lengths = len(dialer).to_bytes(4, "little")
        return hmac.digest(self._secret, b"".join((side, lengths, dialer, acceptor)), sha256)

    def _refuse(self, reason: str) -> None:
        self.state = State.REFUSED
        self._send(RpcFrameKind.REFUSED, reason.encode())
        raise RpcError(reason)


def readable(payload: bytes) -> str:
    """A sentence from elsewhere, fit to be shown."""
    text = payload[:1_024].decode("utf-8", "replace")
    return "".join(each if each.isprintable() else "?" for each in text)


_STEPS: dict[tuple[State, int], Callable[[Handshake, bytes], None]] = {
    (State.HELLO, RpcFrameKind.HELLO): Handshake._hello,
    (State.PROOF, RpcFrameKind.PROOF): Handshake._check,
}
