"""SASL PLAIN (RFC 4616): the one mechanism whose message is the same in every protocol.

    message = [authzid] NUL authcid NUL passwd

Other mechanisms wrap the same two values in the protocol's own clothes (AMQPLAIN in a field
table, MQTT in fields of CONNECT): their adapters unwrap them there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import AuthCode, AuthError

MESSAGE_BYTES_MAX = 65_536
"""What AMQP lets a client send before the frame size is agreed, filled by long tokens."""


@dataclass(frozen=True, slots=True)
class PlainCredentials:
    """A login as sent (`auth.principal.split_login` parts it) and a password."""

    login: str
    password: bytes

    def __repr__(self) -> str:
        """Without the password: this may reach a log."""
        return f"PlainCredentials(login={self.login!r})"


def parse_plain(message: bytes) -> PlainCredentials:
    """Takes a PLAIN message apart.

    Acting for someone else (an authzid other than the authcid) is refused. Raises AuthError
    INVALID_ARGUMENT if the message has not the form above, BAD_CREDENTIALS for the refusal.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise _malformed(f"over {MESSAGE_BYTES_MAX} bytes")
    fields = message.split(b"\0")
    if len(fields) != 3:
        raise _malformed(f"{len(fields)} fields, not 3")
    acting_for, login, password = fields
    if not login or not password:
        raise _malformed("an empty login or password")
    try:
        text = login.decode()
    except UnicodeDecodeError:
        raise _malformed("a login that is not UTF-8") from None
    if acting_for not in (b"", login):
        raise AuthError(AuthCode.BAD_CREDENTIALS, "acting for another user is not allowed")
    return PlainCredentials(text, password)


def _malformed(why: str) -> AuthError:
    return AuthError(AuthCode.INVALID_ARGUMENT, f"not a PLAIN message: {why}")
