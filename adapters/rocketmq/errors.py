"""Status codes of apache.rocketmq.v2 and the error tables.

Rules:

1. What goes wrong with a request is said in the `status` of an answer, never as an error of gRPC:
   clients retry those, or die of them. `RocketmqError` is the only exception that the adapter
   raises for it.
2. Every code of the kernel and of auth has one status (`KERNEL_CODES`, `AUTH_CODES`; tests hold
   the tables complete).
3. TOO_MANY_REQUESTS is what clients back off on, so it stands for everything that passes if one
   waits; on other codes the Python client tries again at once.
4. MESSAGE_NOT_FOUND and MULTIPLE_RESULTS are successes to clients: neither is ever an error here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from adapters.listener_figures import CROWDED
from auth.errors import AuthCode
from kernel.common.errors import Code as KernelCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from auth.errors import AuthError
    from kernel.common.errors import KernelError

TEXT_CHARACTERS_MAX: Final = 512
"""Longest text of a status: what a client sent may be quoted in it, and answers stay small."""


class Code(IntEnum):
    """The codes that this adapter answers with (`enum Code` of the definition)."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    MASTER_PERSISTENCE_TIMEOUT = 50401
    UNSUPPORTED = 50500


REFUSALS: Final = (CROWDED, *(each.name.lower() for each in Code if each >= Code.BAD_REQUEST))
"""Why calls and connections are refused, as metrics have it."""


class RocketmqError(Exception):
    """A request that is refused: the code and a sentence for a human."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:TEXT_CHARACTERS_MAX]

    def __repr__(self) -> str:
        return f"RocketmqError({self.code.name}, {self.message!r})"


KERNEL_CODES: Final[Mapping[KernelCode, Code]] = {
    KernelCode.NOT_FOUND: Code.TOPIC_NOT_FOUND,
    KernelCode.ALREADY_EXISTS: Code.BAD_REQUEST,
    KernelCode.INVALID_ARGUMENT: Code.BAD_REQUEST,
    KernelCode.NOT_ALLOWED: Code.FORBIDDEN,
    KernelCode.LOCKED: Code.FORBIDDEN,
    KernelCode.IN_USE: Code.BAD_REQUEST,
    KernelCode.TOO_LARGE: Code.MESSAGE_BODY_TOO_LARGE,
    KernelCode.REJECTED: Code.TOO_MANY_REQUESTS,
    KernelCode.LEASE_LOST: Code.INVALID_RECEIPT_HANDLE,
    KernelCode.LEASE_OVER: Code.INVALID_RECEIPT_HANDLE,
    KernelCode.SESSION_FENCED: Code.INTERNAL_SERVER_ERROR,
    KernelCode.LIMIT_EXCEEDED: Code.TOO_MANY_REQUESTS,
    KernelCode.BUSY: Code.TOO_MANY_REQUESTS,
    # What the reference says when a broker cannot store: the text tells of the disk.
    KernelCode.NO_SPACE: Code.HA_NOT_AVAILABLE,
    KernelCode.NOT_LEADER: Code.HA_NOT_AVAILABLE,
    # Stored or not is not known: the client sends again, with the same message id.
    KernelCode.UNKNOWN_OUTCOME: Code.MASTER_PERSISTENCE_TIMEOUT,
    KernelCode.NOT_SAME_GROUP: Code.BAD_REQUEST,
    KernelCode.TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    KernelCode.UNAVAILABLE: Code.HA_NOT_AVAILABLE,
}

AUTH_CODES: Final[Mapping[AuthCode, Code]] = {
    AuthCode.BAD_CREDENTIALS: Code.UNAUTHORIZED,
    AuthCode.INVALID_ARGUMENT: Code.UNAUTHORIZED,
    AuthCode.BUSY: Code.TOO_MANY_REQUESTS,
    AuthCode.UNAVAILABLE: Code.HA_NOT_AVAILABLE,
    AuthCode.NOT_FOUND: Code.UNAUTHORIZED,
    AuthCode.ALREADY_EXISTS: Code.INTERNAL_SERVER_ERROR,
    AuthCode.CONFLICT: Code.INTERNAL_SERVER_ERROR,
    AuthCode.IN_USE: Code.INTERNAL_SERVER_ERROR,
    AuthCode.LIMIT_EXCEEDED: Code.TOO_MANY_REQUESTS,
    AuthCode.UNSAFE_FILE: Code.INTERNAL_SERVER_ERROR,
    AuthCode.DAMAGED: Code.INTERNAL_SERVER_ERROR,
}


def from_kernel(error: KernelError) -> RocketmqError:
    """What a client is told of an error of the kernel."""
    return RocketmqError(KERNEL_CODES[error.code], error.message)


def from_auth(error: AuthError) -> RocketmqError:
    """What a client is told of a signature that is not accepted, or could not be checked."""
    return RocketmqError(AUTH_CODES[error.code], error.message)
