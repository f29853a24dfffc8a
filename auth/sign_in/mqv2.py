"""RocketMQ 5's request signature, `MQv2-HMAC-SHA1`.

    authorization:  MQv2-HMAC-SHA1 Credential=KEY[/...], SignedHeaders=x-mq-date-time, Signature=HEX
    x-mq-date-time: 20261121T103000Z
    Signature     = HMAC-SHA1(secret, value of x-mq-date-time)

Nothing but that time is signed: the scheme proves that the client knows the secret, and protects
neither the request nor, within the window on the time, against its repetition. TLS does that; we
claim no more. Clients stamp their *local* time with a literal `Z` (Python, Java), or UTC (Node),
hex in either case: the window must leave 14 hours to both sides.

Clients without credentials send the header with an empty Credential.
Sans-I/O: keys are looked up by the function given, the time is a parameter.
"""

from __future__ import annotations

import hmac
import re
from calendar import timegm
from typing import TYPE_CHECKING

from ..errors import AuthCode, AuthError
from ..principal import SignInMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..users.records import AccessKey

SKEW_MS_MIN = 14 * 3_600_000
"""Time zones reach from UTC-12 to UTC+14: a narrower window refuses honest clients."""

SKEW_MS_DEFAULT = SKEW_MS_MIN + 15 * 60_000
"""With what a clock that nobody sets may be off: as much as AWS grants."""

FOR_EVER_MS = 1 << 62

HEADER_CHARACTERS_MAX = 1_024
"""A key id of 128 characters and a signature need 300."""

KEYS_CACHED_MAX = 1_024
"""Keys whose HMAC is kept ready after a right signature."""

_SCHEME = "MQv2-HMAC-SHA1"
_DATE_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", re.ASCII)
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{40}", re.ASCII)


class MqV2Verifier:
    """Checks signatures of RocketMQ requests."""

    def __init__(
        self,
        find_key: Callable[[str], AccessKey | None],
        secret_of: Callable[[AccessKey], bytes],
        mode: SignInMode = SignInMode.VERIFY,
        skew_ms_max: int | None = None,
    ) -> None:
        """`find_key` and `secret_of` are those of auth.users.directory.

        `skew_ms_max`: None, or at least SKEW_MS_MIN (AuthError INVALID_ARGUMENT otherwise).
        """
        if skew_ms_max is not None and skew_ms_max < SKEW_MS_MIN:
            message = (
                f"RocketMQ clients stamp local time as UTC: the window of {skew_ms_max} ms would "
                f"refuse them. Set it to {SKEW_MS_MIN} ms or more, or leave it off"
            )
            raise AuthError(AuthCode.INVALID_ARGUMENT, message)
        self._find_key = find_key
        self._secret_of = secret_of
        self._mode = mode
        self._skew_ms_max = skew_ms_max
        self._ready: dict[str, tuple[AccessKey, hmac.HMAC]] = {}

    def verify(
        self, authorization: str | None, date_time: str | None, now_ms: int
    ) -> AccessKey | None:
        """The access key that signed a call; `now_ms` is wall time.

        Mode VERIFY: always a key, or AuthError BAD_CREDENTIALS (INVALID_ARGUMENT if the headers
        have not the form above). Mode IDENTIFY: the key named, or None. Mode OFF: None.
        """
        if self._mode is SignInMode.OFF:
            return None
        if self._mode is SignInMode.IDENTIFY:
            try:
                key_id, _ = _parse(authorization)
            except AuthError:
                return None
            return self._find_key(key_id)
        key_id, signature = _parse(authorization)
        key = self._find_key(key_id)
        if key is None:
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"there is no access key {key_id!a}")
        if not date_time:
            raise AuthError(AuthCode.INVALID_ARGUMENT, "the header x-mq-date-time is missing")
        if not hmac.compare_digest(self._expected(key, date_time), signature):
            message = f"the signature does not fit the secret of access key {key_id!a}"
            raise AuthError(AuthCode.BAD_CREDENTIALS, message)
        if self._skew_ms_max is not None:
            stamp_ms = _stamp_ms(date_time)
            if abs(now_ms - stamp_ms) > self._skew_ms_max:
                message = f"x-mq-date-time {date_time!a} is too far from this server's time"
                raise AuthError(AuthCode.BAD_CREDENTIALS, message)
        return key

    def holds_in(self, date_time: str | None) -> tuple[int, int]:
        """The wall times, first and last, between which a signature of `date_time` holds, which
        `verify` has accepted.
        """
        if self._mode is not SignInMode.VERIFY or self._skew_ms_max is None or date_time is None:
            return 0, FOR_EVER_MS
        stamp_ms = _stamp_ms(date_time)
        return stamp_ms - self._skew_ms_max, stamp_ms + self._skew_ms_max

    def _expected(self, key: AccessKey, date_time: str) -> bytes:
        ready = self._ready.get(key.key_id)
        if ready is None or ready[0] is not key:
            if len(self._ready) >= KEYS_CACHED_MAX:
                self._ready.clear()
            # Only keys that exist come here, so strangers cannot fill the table.
            ready = self._ready[key.key_id] = (key, hmac.new(self._secret_of(key), None, "sha1"))
        signer = ready[1].copy()
        signer.update(date_time.encode("utf-8", "surrogatepass"))
        return signer.digest()


def _stamp_ms(date_time: str) -> int:
    """The time that was signed. Raises AuthError INVALID_ARGUMENT."""
    match = _DATE_TIME.fullmatch(date_time)
    if match is None:
        message = "x-mq-date-time is not of the form 20261121T103000Z"
        raise AuthError(AuthCode.INVALID_ARGUMENT, message)
    year, month, day, hour, minute, second = (int(part) for part in match.groups())
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= 31:
        message = f"x-mq-date-time {date_time!a} is no date"
        raise AuthError(AuthCode.INVALID_ARGUMENT, message)
    return timegm((year, month, day, hour, minute, second)) * 1_000


def _parse(authorization: str | None) -> tuple[str, bytes]:
    """Key id and signature of an authorization header."""
    if not authorization:
        message = f"sign in: the authorization header ({_SCHEME}) is missing"
        raise AuthError(AuthCode.BAD_CREDENTIALS, message)
    scheme, _, rest = authorization.partition(" ")
    if scheme != _SCHEME or len(authorization) > HEADER_CHARACTERS_MAX:
        raise AuthError(AuthCode.INVALID_ARGUMENT, f"the authorization is not {_SCHEME}")
    fields: dict[str, str] = {}
    for pair in rest.split(","):
        name, _, value = pair.strip().partition("=")
        if name in fields:
            raise AuthError(AuthCode.INVALID_ARGUMENT, "the authorization names a field twice")
        fields[name] = value
    key_id = fields.get("Credential", "").partition("/")[0]
    if not key_id:
        message = "sign in: the authorization names no access key"
        raise AuthError(AuthCode.BAD_CREDENTIALS, message)
    signature = fields.get("Signature", "")
    if _SIGNATURE.fullmatch(signature) is None:
        raise AuthError(AuthCode.INVALID_ARGUMENT, "the signature is not 40 hex digits")
    return key_id, bytes.fromhex(signature)
