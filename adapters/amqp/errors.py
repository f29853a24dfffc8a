"""AMQP reply codes and the one exception of the codec and the state machines.

Rules:

1. `AmqpError` is the only exception that may leave a codec or state machine of this package;
   any other one is a bug.
2. The reply code alone decides how far an error reaches: a *soft* code closes the channel
   (channel.close), a *hard* one the connection (connection.close); AMQP 0-9-1 section 1.2,
   constants of class "soft-error" and "hard-error". A few soft codes must close the connection
   at certain moments (a refused login, for one); `hard=True` says so.
3. Every error code of the kernel has one reply code (`KERNEL_REPLIES`; a test holds the table
   complete). Where a method's own rules ask for another one, its code says so.
4. The reply text has the form ``NAME - explanation`` and at most 255 bytes of UTF-8, cut at a
   character, because it travels in a short string.
"""

from __future__ import annotations

from typing import Final

from adapters.listener_figures import CROWDED
from kernel.common.errors import Code, KernelError

REPLY_SUCCESS: Final = 200
CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

REPLY_NAMES: Final[dict[int, str]] = {
    REPLY_SUCCESS: "OK",
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}

SOFT_CODES: Final = frozenset(
    {
        CONTENT_TOO_LARGE,
        NO_ROUTE,
        NO_CONSUMERS,
        ACCESS_REFUSED,
        NOT_FOUND,
        RESOURCE_LOCKED,
        PRECONDITION_FAILED,
    }
)

LOGIN: Final = "login"
NO_HEADER: Final = "no_header"
SILENT: Final = "silent"

REFUSALS: Final = (
    CROWDED,
    LOGIN,
    NO_HEADER,
    SILENT,
    *(
        name.lower()
        for code, name in REPLY_NAMES.items()
        if code not in {REPLY_SUCCESS, NO_ROUTE, NO_CONSUMERS, CONNECTION_FORCED}
    ),
)
"""Why connections are refused or ended for what their client did, as metrics have it: reply codes
by name, and what has none. 320 is our own end, or an operator's."""

KERNEL_REPLIES: Final[dict[Code, int]] = {
    Code.NOT_FOUND: NOT_FOUND,
    Code.ALREADY_EXISTS: PRECONDITION_FAILED,
    Code.INVALID_ARGUMENT: PRECONDITION_FAILED,
    Code.NOT_ALLOWED: ACCESS_REFUSED,
    Code.LOCKED: RESOURCE_LOCKED,
    Code.IN_USE: PRECONDITION_FAILED,
    Code.TOO_LARGE: PRECONDITION_FAILED,
    Code.REJECTED: PRECONDITION_FAILED,
    Code.LEASE_LOST: PRECONDITION_FAILED,
    Code.LEASE_OVER: PRECONDITION_FAILED,
    # The session is the connection: without it nothing on the connection can go on.
    Code.SESSION_FENCED: CONNECTION_FORCED,
    # Soft, because the rest of the connection works; the text says which limit and to try again.
    Code.LIMIT_EXCEEDED: PRECONDITION_FAILED,
    Code.BUSY: PRECONDITION_FAILED,
    Code.NO_SPACE: PRECONDITION_FAILED,
    # The client cannot know what holds now: reconnecting and declaring anew tells it.
    Code.NOT_LEADER: INTERNAL_ERROR,
    Code.UNKNOWN_OUTCOME: INTERNAL_ERROR,
    Code.NOT_SAME_GROUP: PRECONDITION_FAILED,
    Code.TIMEOUT: INTERNAL_ERROR,
    Code.UNAVAILABLE: CONNECTION_FORCED,
}

# A reply text is a short string: its length is one octet (AMQP 0-9-1 section 4.2.5.3).
REPLY_TEXT_BYTES_MAX: Final = 255


class AmqpError(Exception):
    """One AMQP exception: what channel.close or connection.close will say.

    `class_id` and `method_id` name the culprit; both are 0 for frame errors and logins, and
    until the state machine that knows the method fills them in with `blame`.
    """

    def __init__(
        self,
        code: int,
        explanation: str,
        *,
        class_id: int = 0,
        method_id: int = 0,
        hard: bool | None = None,
    ) -> None:
        super().__init__(code, explanation)
        self.code = code
        self.explanation = explanation
        self.class_id = class_id
        self.method_id = method_id
        self.hard = code not in SOFT_CODES if hard is None else hard

    @property
    def text(self) -> str:
        """The reply text, ``NAME - explanation``, at most 255 bytes long in UTF-8."""
        return cut_text(f"{REPLY_NAMES[self.code]} - {self.explanation}")

    def blame(self, class_id: int, method_id: int) -> AmqpError:
        """Name the method at fault, unless it is known already; returns the same error."""
        if not self.class_id:
            self.class_id = class_id
            self.method_id = method_id
        return self

    def __str__(self) -> str:
        """As it stands in a log."""
        return f"{self.code} {self.text} ({self.class_id}.{self.method_id})"


class LoginRefused(AmqpError):
    """A login that failed. No method is to blame, and some clients must not be told at all."""

    def __init__(self, code: int, explanation: str) -> None:
        # There is no channel yet to close, so it ends the connection whatever its code.
        super().__init__(code, explanation, hard=True)

    def blame(self, class_id: int, method_id: int) -> AmqpError:
        """RabbitMQ names class 0 and method 0."""
        del class_id, method_id
        return self


def from_kernel(error: KernelError) -> AmqpError:
    """What a client is told of a kernel error that ended its method."""
    return AmqpError(KERNEL_REPLIES[error.code], error.message)


def cut_text(text: str) -> str:
    """`text` cut at a character so that its UTF-8 form fits a short string."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= REPLY_TEXT_BYTES_MAX:
        return encoded.decode("utf-8")
    return encoded[:REPLY_TEXT_BYTES_MAX].decode("utf-8", "ignore")
