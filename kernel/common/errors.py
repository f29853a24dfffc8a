"""The one error tree of the kernel.

Every error is a value with three facts: a stable code, whether the same call may succeed when
tried again, and whose fault it is. Adapters map every member of `Code` to their wire form in one
table; a test of each adapter proves its table complete. Any other exception that leaves the kernel
is a bug.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that do not decode: also for text that is no UTF-8, and for what is
too deep."""


class Fault(Enum):
    """Whose fault an error is: the caller's (a client did wrong) or ours (the server could not)."""

    CALLER = "caller"
    SERVER = "server"


class Code(Enum):
    """Stable error codes: (name on the wire between nodes, retryable, fault)."""

    NOT_FOUND = ("not_found", False, Fault.CALLER)
    """The named topic, router, group or session does not exist."""
    ALREADY_EXISTS = ("already_exists", False, Fault.CALLER)
    """A creation met a thing of that name with another definition."""
    INVALID_ARGUMENT = ("invalid_argument", False, Fault.CALLER)
    """A name, option or value is outside what the kernel allows; the message says which."""
    NOT_ALLOWED = ("not_allowed", False, Fault.CALLER)
    """The principal lacks the right."""
    LOCKED = ("locked", False, Fault.CALLER)
    """An exclusive owner or an exclusive consumer holds it."""
    IN_USE = ("in_use", False, Fault.CALLER)
    """A conditional deletion met consumers, messages or routes."""
    TOO_LARGE = ("too_large", False, Fault.CALLER)
    """A message exceeds the topic's or the kernel's size limit."""
    REJECTED = ("rejected", True, Fault.CALLER)
    """The destination is full and its overflow policy says to refuse."""
    LEASE_LOST = ("lease_lost", False, Fault.CALLER)
    """The lease token is superseded, settled or was never given."""
    LEASE_OVER = ("lease_over", False, Fault.CALLER)
    """The lease has run out, but nobody has got the message since."""
    SESSION_FENCED = ("session_fenced", False, Fault.CALLER)
    """A newer epoch of the session exists, or the session has ended."""
    LIMIT_EXCEEDED = ("limit_exceeded", True, Fault.CALLER)
    """A named limit (in flight, names, routes, sessions) is reached; the message names it."""
    NOT_SAME_GROUP = ("not_same_group", False, Fault.CALLER)
    """A transaction names queues of several Raft groups: there is no atomicity across them."""
    BUSY = ("busy", True, Fault.SERVER)
    """A bounded queue inside the server is full: back off and try again."""
    NO_SPACE = ("no_space", True, Fault.SERVER)
    """Free disk is below the mark: new messages are refused, consumption goes on."""
    NOT_LEADER = ("not_leader", True, Fault.SERVER)
    """This node does not lead the group (the client library retries before anyone sees it)."""
    UNKNOWN_OUTCOME = ("unknown_outcome", True, Fault.SERVER)
    """The call may or may not have been executed; a retry of the same batch is deduplicated."""
    TIMEOUT = ("timeout", True, Fault.SERVER)
    """The deadline passed before a majority had it on disk; executed or not is not known."""
    UNAVAILABLE = ("unavailable", True, Fault.SERVER)
    """The server is starting, draining or without a leader."""

    def __init__(self, wire: str, retryable: bool, fault: Fault) -> None:
        self.wire = wire
        self.retryable = retryable
        self.fault = fault


class KernelError(Exception):
    """An error with a `Code` and a sentence for a human (no stack, no secret, ASCII)."""

    def __init__(self, code: Code, message: str, hint: int = 0) -> None:
        """`hint`, of NOT_LEADER: number of the node that leads; 0: not known."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __repr__(self) -> str:
        return f"KernelError({self.code.name}, {self.message!r})"


class NotLoaded(Exception):
    """A synchronous look-up met a name that this gateway has not loaded: await `load`, then retry.

    Never reaches a client of a protocol.
    """


_BY_NAME = {code.wire: code for code in Code}


def error_named(name: str, message: str, hint: int = 0) -> KernelError:
    """An error as another process tells it: by its code's name on the wire. One of a code that is
    not known here is UNAVAILABLE.
    """
    return KernelError(_BY_NAME.get(name, Code.UNAVAILABLE), message, hint)
