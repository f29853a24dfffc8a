"""The errors of signing in, of the user store and of its files.

As in the kernel, an error is a value with three facts: a stable code, whether the same call may
succeed when tried again, and whose fault it is. The message is a sentence for a human: it never
holds a password, a secret, a token or a signature. Adapters map every member of `AuthCode` to
their wire form in one table.
"""

from __future__ import annotations

from enum import Enum


class AuthCode(Enum):
    """Stable codes: (name in logs and in the admin API, retryable, the caller's fault)."""

    BAD_CREDENTIALS = ("bad_credentials", False, True)
    """Unknown login, wrong password, wrong signature: deliberately one code for all of them."""
    BUSY = ("auth_busy", True, False)
    """The bounded queue of password checks is full: back off and sign in again."""
    UNAVAILABLE = ("auth_unavailable", True, False)
    """A check could not be made (shutting down, out of memory); nothing was decided."""
    INVALID_ARGUMENT = ("invalid_argument", False, True)
    """A name, rule or field is outside what is allowed; the message says which."""
    NOT_FOUND = ("not_found", False, True)
    ALREADY_EXISTS = ("already_exists", False, True)
    CONFLICT = ("conflict", True, True)
    """The record was altered by someone else meanwhile: read it again, then alter it."""
    IN_USE = ("in_use", False, True)
    """A policy that users still refer to cannot be removed."""
    LIMIT_EXCEEDED = ("limit_exceeded", False, True)
    """A named limit of the store is reached."""
    UNSAFE_FILE = ("unsafe_file", False, False)
    """A secret file may be read by others; the message holds the command that mends it."""
    DAMAGED = ("damaged", False, False)
    """A file, snapshot or envelope does not have the form this version writes."""

    def __init__(self, wire: str, retryable: bool, caller_fault: bool) -> None:
        self.wire = wire
        self.retryable = retryable
        self.caller_fault = caller_fault


class AuthError(Exception):
    """An error with an `AuthCode` and a sentence for a human."""

    def __init__(self, code: AuthCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {self.message!r})"
