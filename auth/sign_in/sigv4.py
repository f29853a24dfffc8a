"""Verification of AWS Signature Version 4, in header form and in query (pre-signed) form.

    signing key =
        HMAC(HMAC(HMAC(HMAC("AWS4" + secret, day), region), service), "aws4_request")
    text = AWS4-HMAC-SHA256, timestamp, scope and SHA-256(canonical request), joined by LF
    signature = hex(HMAC(signing key, text))

The forms of its parts are in auth.sign_in.sigv4_form.

Rules:
- Signed must be: host, the date, and every `x-amz-` header that is there; else someone on the
  way could add or change one (the action of an SQS request is such a header).
- The body's real hash is what is compared; UNSIGNED-PAYLOAD only where it is allowed.
- The date may be 15 minutes off; a pre-signed request lives as long as it says, a week at most.
- Behind a proxy that rewrites Host, names of `trusted_hosts` are tried in its place.
- Signatures are compared in constant time. Nothing that an unverified request says is kept.
- No temporary credentials are issued here, so X-Amz-Security-Token makes no key more valid: it
  must be signed like every `x-amz-` header and is not read.

Derived keys and parsed headers are kept from one request to the next (the same for a day), so a
request costs three hashes. Sans-I/O: keys are looked up by functions, the time is a parameter.
"""

from __future__ import annotations

import hmac
import re
from calendar import timegm
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from ..principal import SignInMode
from .sigv4_form import (
    ALGORITHM,
    Claim,
    Refusal,
    SignatureError,
    canonical_path,
    canonical_queries,
    folded,
    incomplete,
    parse_authorization,
    parse_query_claim,
    split_query,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..users.records import AccessKey

SKEW_S_MAX = 900
"""What AWS allows between the clocks of client and server."""

SIGNERS_MAX = 1_024
"""Signing keys kept: (access key, day, region) that signed rightly."""

CLAIMS_MAX = 4_096
"""Parsed Authorization headers kept: about one per program, key and day."""

TRUSTED_HOSTS_MAX = 8
"""Each is one more hash for a request that does not fit."""

DEFAULT_REGION = "us-east-1"
"""Region of a request that names none, in the modes that let it in."""

UNSIGNED_PAYLOAD = b"UNSIGNED-PAYLOAD"

_NO_QUERY = [b""]

_Headers = dict[bytes, bytes]


class SignedIdentity(NamedTuple):
    """Who a request says it is from."""

    key: AccessKey | None
    """None only in modes other than VERIFY."""
    region: str
    is_verified: bool


class HttpRequest(NamedTuple):
    """A request as it came, in the terms of ASGI."""

    method: str
    raw_path: bytes
    """As in the request line, still encoded, without the query."""
    query: bytes
    """Still encoded, without `?`."""
    headers: Sequence[tuple[bytes, bytes]]
    """Names in lower case."""
    body: bytes


class _Said(NamedTuple):
    """Claim, signature and time of a request, from either form."""

    claim: Claim
    signature: bytes
    timestamp: bytes


@dataclass(frozen=True, slots=True)
class _Signer:
    """An HMAC under the derived key, valid while the access key is the same record."""

    key: AccessKey
    mac: hmac.HMAC


class SigV4Verifier:
    """Verifies requests to one service. Belongs to the event loop; one a listener."""

    def __init__(
        self,
        find_key: Callable[[str], AccessKey | None],
        secret_of: Callable[[AccessKey], bytes],
        mode: SignInMode = SignInMode.VERIFY,
        *,
        service: str = "sqs",
        allow_unsigned_payload: bool = False,
        trusted_hosts: Sequence[str] = (),
    ) -> None:
        """`find_key` gives keys that may sign now; `secret_of` their secret (auth.users.directory).

        `trusted_hosts`: values of Host that clients may have signed instead of the one that
        arrives, at most TRUSTED_HOSTS_MAX (ValueError).
        """
        if len(trusted_hosts) > TRUSTED_HOSTS_MAX:
            raise ValueError(f"at most {TRUSTED_HOSTS_MAX} trusted hosts")
        self._find_key = find_key
        self._secret_of = secret_of
        self._mode = mode
        self._service = service.encode()
        self._allow_unsigned_payload = allow_unsigned_payload
        # None: the Host that came.
        self._hosts = (None, *(host.encode() for host in trusted_hosts))
        self._signers: dict[tuple[str, bytes], _Signer] = {}
        self._claims: dict[bytes, Claim] = {}

    def verify(self, request: HttpRequest, now_s: int) -> SignedIdentity:
        """Who signed a request; `now_s` is wall time in seconds since 1970.

        Raises SignatureError in mode VERIFY only; `secret_of` may raise AuthError DAMAGED.
        """
        by_name = _by_name(request.headers)
        if self._mode is not SignInMode.VERIFY:
            return self._identify(by_name, request.query)
        said, queries, text = self._read(request, by_name, now_s)
        identity = self._compare(said, request, by_name, queries)
        if text is not None and text not in self._claims:
            if len(self._claims) >= CLAIMS_MAX:
                self._claims.clear()
            self._claims[text] = said.claim
        return identity

    def knows(self, key: AccessKey) -> bool:
        """Whether what a key has signed would be accepted now: it may have been disabled since."""
        found = self._find_key(key.key_id)
        return found is not None and found.signs_as(key)

    def check_head(self, request: HttpRequest, now_s: int) -> AccessKey | None:
        """Refuse what can be refused before the body of a request has come: it has no signature, an
        unknown key, or a time that is over. Whose key it names; None: as in `SignedIdentity`.

        Raises as `verify`; what passes here is not verified.
        """
        by_name = _by_name(request.headers)
        if self._mode is not SignInMode.VERIFY:
            return self._identify(by_name, request.query).key
        said, _, _ = self._read(request, by_name, now_s)
        key = self._known_key(said.claim)
        _check_amz_headers(by_name, said.claim)
        return key

    # ------------------------------------------------------------------ the two forms

    def _read(
        self, request: HttpRequest, by_name: _Headers, now_s: int
    ) -> tuple[_Said, list[bytes], bytes | None]:
        """What a request says, the queries that it may have been signed with, and the text that
        stands for its claim in the table. Raises SignatureError, also for a time that is over.
        """
        authorization = by_name.get(b"authorization")
        if authorization is None:
            return *self._read_query(request, now_s), None
        claim, signature, text = self._claim_of(authorization)
        timestamp, stamp_s = _timestamp_of(by_name, claim)
        if abs(now_s - stamp_s) > SKEW_S_MAX:
            raise _expired(timestamp, now_s)
        queries = canonical_queries(split_query(request.query)) if request.query else _NO_QUERY
        return _Said(claim, signature, timestamp), queries, text

    def _claim_of(self, authorization: bytes) -> tuple[Claim, bytes, bytes]:
        """(claim, signature, the text that stands for the claim in the table)."""
        text, _, signature = authorization.rpartition(b"Signature=")
        claim = self._claims.get(text)
        if claim is None:
            claim, parsed = parse_authorization(authorization, self._service)
            if parsed != signature:
                return claim, parsed, authorization  # the signature is not the last field
        return claim, signature, text

    def _read_query(self, request: HttpRequest, now_s: int) -> tuple[_Said, list[bytes]]:
        if b"X-Amz-" not in request.query:
            message = "Request is missing Authentication Token"
            raise SignatureError(Refusal.MISSING, message)
        pairs = split_query(request.query)
        asked = parse_query_claim(pairs, self._service)
        start_s = _parse_timestamp(asked.timestamp, asked.claim)
        if now_s > start_s + asked.expires_s or now_s < start_s - SKEW_S_MAX:
            raise _expired(asked.timestamp, now_s)
        signed = [pair for pair in pairs if unquote_to_bytes(pair[0]) != b"X-Amz-Signature"]
        said = _Said(asked.claim, asked.signature, asked.timestamp)
        return said, canonical_queries(signed)

    def _identify(self, by_name: _Headers, query: bytes) -> SignedIdentity:
        """What a request says of itself, believed. Says nothing, or nonsense: nobody."""
        try:
            authorization = by_name.get(b"authorization")
            if authorization is not None:
                claim, _ = parse_authorization(authorization, self._service)
            else:
                claim = parse_query_claim(split_query(query), self._service).claim
        except SignatureError:
            return SignedIdentity(None, DEFAULT_REGION, is_verified=False)
        is_named = self._mode is SignInMode.IDENTIFY
        key = self._find_key(claim.key_id) if is_named else None
        return SignedIdentity(key, claim.region, is_verified=False)

    # ------------------------------------------------------------------ the signature

    def _known_key(self, claim: Claim) -> AccessKey:
        key = self._find_key(claim.key_id)
        if key is None:
            message = "The security token included in the request is invalid."
            raise SignatureError(Refusal.UNKNOWN_KEY, message)
        return key

    def _payload_hash(self, by_name: _Headers, body: bytes) -> bytes:
        claimed = by_name.get(b"x-amz-content-sha256")
        if claimed == UNSIGNED_PAYLOAD and self._allow_unsigned_payload:
            return UNSIGNED_PAYLOAD
        real = sha256(body).hexdigest().encode()
        if claimed is not None and claimed != real:
            message = (
                "This server does not accept unsigned payloads."
                if claimed == UNSIGNED_PAYLOAD
                else "The provided 'x-amz-content-sha256' header does not match what was computed."
            )
            raise SignatureError(Refusal.MISMATCH, message)
        return real

    def _compare(
        self, said: _Said, request: HttpRequest, by_name: _Headers, queries: list[bytes]
    ) -> SignedIdentity:
        """Raises SignatureError unless one reading of the request fits the signature."""
        claim = said.claim
        key = self._known_key(claim)
        _check_amz_headers(by_name, claim)
        payload = self._payload_hash(by_name, request.body)
        slot = (claim.key_id, claim.scope)
        signer = self._signers.get(slot)
        if signer is None or signer.key is not key:
            signer = _Signer(key, self._derive(key, claim))
        method, path = request.method.encode(), canonical_path(request.raw_path)
        canonical = b""
        for host in self._hosts:
            lines = _header_lines(by_name, claim, host)
            for query in queries:
                canonical = b"\n".join(
                    (method, path, query, lines, b"", claim.signed_text, payload)
                )
                if _fits(signer, said, canonical):
                    self._keep(slot, signer)
                    return SignedIdentity(key, claim.region, is_verified=True)
        message = (
            "The request signature we calculated does not match the signature you provided. Check "
            "your AWS Secret Access Key and signing method. Consult the service documentation for "
            "details."
        )
        raise SignatureError(Refusal.MISMATCH, message, canonical)

    def _derive(self, key: AccessKey, claim: Claim) -> hmac.HMAC:
        derived = b"AWS4" + self._secret_of(key)
        for part in claim.scope.split(b"/"):
            derived = hmac.digest(derived, part, "sha256")
        return hmac.new(derived, None, "sha256")

    def _keep(self, slot: tuple[str, bytes], signer: _Signer) -> None:
        if slot not in self._signers and len(self._signers) >= SIGNERS_MAX:
            self._signers.clear()
        self._signers[slot] = signer


def _fits(signer: _Signer, said: _Said, canonical: bytes) -> bool:
    mac = signer.mac.copy()
    digest = sha256(canonical).hexdigest().encode()
    mac.update(b"\n".join((ALGORITHM, said.timestamp, said.claim.scope, digest)))
    return hmac.compare_digest(mac.hexdigest().encode(), said.signature)


def _by_name(headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
    """Values by name; those of a repeated header folded and joined by commas, as they are signed.

    A repeated Authorization is refused with the rest of what cannot be parsed.
    """
    by_name: _Headers = {}
    for name, value in headers:
        if name in by_name:
            by_name[name] = folded(by_name[name]) + b"," + folded(value)
        else:
            by_name[name] = value
    return by_name


def _header_lines(by_name: _Headers, claim: Claim, host: bytes | None) -> bytes:
    lines = []
    for name in claim.signed:
        value = by_name.get(name)
        if value is None:
            raise incomplete(f"the signed header {name.decode()} is not in the request")
        if host is not None and name == b"host":
            value = host
        lines.append(name + b":" + b" ".join(value.split()))
    return b"\n".join(lines)


def _check_amz_headers(by_name: _Headers, claim: Claim) -> None:
    for name in by_name:
        if name.startswith(b"x-amz-") and name not in claim.signed:
            message = f"There were headers present in the request which were not signed: {name!a}"
            raise SignatureError(Refusal.MISMATCH, message)


# ---------------------------------------------------------------------------- time

_TIMESTAMP = re.compile(rb"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_MONTHS = (
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
)  # fmt: skip
_HTTP_DATE = re.compile(
    rb"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) "
    rb"(?:GMT|[+-]0000)"
)


def _timestamp_of(by_name: _Headers, claim: Claim) -> tuple[bytes, int]:
    """The signed time, as it stands in the signed text, and in seconds since 1970."""
    timestamp = by_name.get(b"x-amz-date")
    if timestamp is None:
        date = by_name.get(b"date")
        if date is None or b"date" not in claim.signed:
            message = "Authorization header requires existence of either a signed 'X-Amz-Date' or"
            raise incomplete(f"{message} a signed 'Date' header")
        timestamp = _from_http_date(date)
    return timestamp, _parse_timestamp(timestamp, claim)


def _parse_timestamp(timestamp: bytes, claim: Claim) -> int:
    """Seconds since 1970. Raises SignatureError: no such time, or not the day of the scope."""
    stamp_s = _seconds(timestamp)
    if stamp_s is None:
        raise incomplete("Date must be in ISO-8601 'basic format', as in 20261121T103000Z")
    if timestamp[:8] != claim.day:
        message = "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date"
        raise SignatureError(Refusal.MISMATCH, message)
    return stamp_s


@lru_cache(maxsize=64)
def _seconds(timestamp: bytes) -> int | None:
    """Seconds since 1970; None if it is no time. Many requests are signed in one second."""
    match = _TIMESTAMP.fullmatch(timestamp)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups())
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    return timegm((year, month, day, hour, minute, second))


def _from_http_date(date: bytes) -> bytes:
    """`Sat, 21 Nov 2026 10:30:00 GMT` as `20261121T103000Z`."""
    match = _HTTP_DATE.fullmatch(date.strip())
    if match is None or match[2] not in _MONTHS:
        raise incomplete("Date must be of the form 'Sat, 21 Nov 2026 10:30:00 GMT'")
    month = b"%02d" % (_MONTHS.index(match[2]) + 1)
    return match[3] + month + match[1] + b"T" + match[4] + match[5] + match[6] + b"Z"


def _expired(timestamp: bytes, now_s: int) -> SignatureError:
    message = (
        f"Signature expired or not yet valid: the request says {timestamp.decode()}, which is too "
        f"far from this server's time, {now_s} seconds since 1970 in UTC"
    )
    return SignatureError(Refusal.EXPIRED, message)
