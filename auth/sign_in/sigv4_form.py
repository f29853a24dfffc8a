"""The forms of AWS Signature Version 4, as pure functions of bytes.

What a request says about its signature, and the canonical texts that a signature is made over.

Header form:

    Authorization: AWS4-HMAC-SHA256 Credential=KEY/20261121/eu-west-1/sqs/aws4_request,
                   SignedHeaders=host;x-amz-date, Signature=<64 hex>

Query form (pre-signed): the same facts as X-Amz-Algorithm, X-Amz-Credential, X-Amz-Date,
X-Amz-Expires, X-Amz-SignedHeaders and X-Amz-Signature.

Canonical request, lines joined by LF:

    method
    path: dot segments and double slashes removed, then percent-encoded (once more)
    query: names and values percent-encoded, sorted, without X-Amz-Signature
    one line a signed header, name:value, blanks folded, in the order of SignedHeaders
    (empty)
    SignedHeaders
    SHA-256 of the body in hex, or UNSIGNED-PAYLOAD
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ..errors import AuthCode, AuthError

ALGORITHM = b"AWS4-HMAC-SHA256"
EXPIRES_S_MAX = 604_800
"""A pre-signed request lives a week at most."""

SIGNED_HEADERS_MAX = 64
"""SDKs sign five to twelve headers."""

QUERY_PAIRS_MAX = 512
"""A batch of ten messages with ten attributes each, in the old Query form, has about 350."""


class Refusal(Enum):
    """Why a signature is refused: (code that AWS gives, HTTP status)."""

    MISSING = ("MissingAuthenticationToken", 403)
    INCOMPLETE = ("IncompleteSignature", 400)
    UNKNOWN_KEY = ("InvalidClientTokenId", 403)
    MISMATCH = ("SignatureDoesNotMatch", 403)
    EXPIRED = ("RequestExpired", 400)

    def __init__(self, aws_code: str, http_status: int) -> None:
        self.aws_code = aws_code
        self.http_status = http_status


class SignatureError(AuthError):
    """A request whose signature is not accepted, with the answer AWS would give.

    `canonical_request` is what this server signed, where it came to that: comparing it with the
    client's own finds the difference. It holds header values: for debug logs only.
    """

    def __init__(
        self, refusal: Refusal, message: str, canonical_request: bytes | None = None
    ) -> None:
        malformed = refusal is Refusal.INCOMPLETE
        super().__init__(
            AuthCode.INVALID_ARGUMENT if malformed else AuthCode.BAD_CREDENTIALS, message
        )
        self.refusal = refusal
        self.canonical_request = canonical_request


def incomplete(why: str) -> SignatureError:
    return SignatureError(Refusal.INCOMPLETE, why)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request says about its signature, but for the signature itself."""

    key_id: str
    day: bytes
    region: str
    scope: bytes
    """day/region/service/aws4_request, as it stands in the text that is signed."""
    signed: tuple[bytes, ...]
    """Names of signed headers, lower case, in their order."""
    signed_text: bytes


@dataclass(frozen=True, slots=True)
class QueryClaim:
    """What a pre-signed query says."""

    claim: Claim
    signature: bytes
    timestamp: bytes
    expires_s: int


# ---------------------------------------------------------------------------- what is claimed


def parse_authorization(header: bytes, service: bytes) -> tuple[Claim, bytes]:
    """Claim and signature of an Authorization header. Raises SignatureError."""
    scheme, _, rest = header.partition(b" ")
    if scheme != ALGORITHM:
        raise incomplete(f"Authorization must begin with {ALGORITHM.decode()}")
    fields: dict[bytes, bytes] = {}
    for pair in rest.split(b","):
        name, equals, value = pair.strip().partition(b"=")
        if not equals or name in fields:
            raise incomplete("Authorization is not a list of distinct name=value pairs")
        fields[name] = value
    for required in (b"Credential", b"SignedHeaders", b"Signature"):
        if not fields.get(required):
            raise incomplete(f"Authorization header requires '{required.decode()}' parameter")
    claim = parse_claim(fields[b"Credential"], fields[b"SignedHeaders"], service)
    return claim, fields[b"Signature"]


_KEY_ID = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_DAY = re.compile(rb"[0-9]{8}")
_REGION = re.compile(rb"[A-Za-z0-9-]{1,64}")
_HEADER_NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")


def parse_claim(credential: bytes, signed_headers: bytes, service: bytes) -> Claim:
    """A claim from its two fields. Raises SignatureError."""
    parts = credential.split(b"/")
    if len(parts) != 5:
        raise incomplete("Credential must be KEY/YYYYMMDD/REGION/SERVICE/aws4_request")
    key_id, day, region, scoped_service, end = parts
    if _KEY_ID.fullmatch(key_id) is None:
        message = "The security token included in the request is invalid."
        raise SignatureError(Refusal.UNKNOWN_KEY, message)
    if _DAY.fullmatch(day) is None or _REGION.fullmatch(region) is None:
        raise incomplete("Credential must hold a day as YYYYMMDD and the name of a region")
    if scoped_service != service:
        message = f"Credential should be scoped to correct service: '{service.decode()}'."
        raise SignatureError(Refusal.MISMATCH, message)
    if end != b"aws4_request":
        message = "Credential should be scoped with a valid terminator: 'aws4_request'."
        raise SignatureError(Refusal.MISMATCH, message)
    signed = tuple(signed_headers.split(b";"))
    if len(signed) > SIGNED_HEADERS_MAX or len(set(signed)) != len(signed):
        raise incomplete("SignedHeaders names a header twice, or too many")
    if not all(map(_HEADER_NAME.fullmatch, signed)):
        raise incomplete("SignedHeaders must be lower-case header names parted by ;")
    if b"host" not in signed:
        raise incomplete("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    scope = b"/".join(parts[1:])
    return Claim(key_id.decode(), day, region.decode(), scope, signed, signed_headers)


_QUERY_FIELDS = (
    b"X-Amz-Algorithm",
    b"X-Amz-Credential",
    b"X-Amz-Date",
    b"X-Amz-Expires",
    b"X-Amz-SignedHeaders",
    b"X-Amz-Signature",
)


def parse_query_claim(pairs: list[tuple[bytes, bytes]], service: bytes) -> QueryClaim:
    """What a pre-signed query says. Raises SignatureError."""
    fields: dict[bytes, bytes] = {}
    for name, value in pairs:
        plain = unquote_to_bytes(name)
        if plain in _QUERY_FIELDS:
            if plain in fields:
                raise incomplete(f"AWS query-string parameter {plain.decode()} is given twice")
            fields[plain] = unquote_to_bytes(value)
    for required in _QUERY_FIELDS:
        if not fields.get(required):
            raise incomplete(f"AWS query-string parameters must include '{required.decode()}'")
    if fields[b"X-Amz-Algorithm"] != ALGORITHM:
        raise incomplete(f"X-Amz-Algorithm must be {ALGORITHM.decode()}")
    expires = fields[b"X-Amz-Expires"]
    if re.fullmatch(rb"[0-9]{1,6}", expires) is None or not 0 < int(expires) <= EXPIRES_S_MAX:
        raise incomplete(f"X-Amz-Expires must be 1 to {EXPIRES_S_MAX} seconds")
    claim = parse_claim(fields[b"X-Amz-Credential"], fields[b"X-Amz-SignedHeaders"], service)
    return QueryClaim(claim, fields[b"X-Amz-Signature"], fields[b"X-Amz-Date"], int(expires))


# ---------------------------------------------------------------------------- canonical texts

_PLAIN_PATH = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+")


def canonical_path(raw_path: bytes) -> bytes:
    """The path of the request line, normalised, then encoded: `%2F` becomes `%252F`."""
    if raw_path in {b"/", b""}:
        return b"/"
    if _PLAIN_PATH.fullmatch(raw_path) is not None:
        return raw_path
    kept: list[bytes] = []
    for segment in raw_path.split(b"/"):
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    path = b"/" + b"/".join(kept)
    if kept and raw_path.endswith(b"/"):
        path += b"/"
    return quote_from_bytes(path, safe="/-_.~").encode()


def split_query(query: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values of a query string, still encoded. Raises SignatureError if too many."""
    if not query:
        return []
    if query.count(b"&") >= QUERY_PAIRS_MAX:
        raise incomplete(f"a query string holds at most {QUERY_PAIRS_MAX} parameters")
    pairs = []
    for field in query.split(b"&"):
        name, _, value = field.partition(b"=")
        pairs.append((name, value))
    return pairs


def canonical_queries(pairs: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The canonical query string, in the readings that signers use: first the rule, then as sent.

    The rule decodes (`+` is a blank, as in a form) and encodes again. Botocore signs a URL that
    it was given as it is; that differs for `+` and for needless or missing escapes. Both bind
    the parameters exactly: a text that equals another request's encoded form decodes to that
    request's parameters.
    """
    if not pairs:
        return [b""]
    by_rule = _joined([(_encoded(name), _encoded(value)) for name, value in pairs])
    as_sent = _joined(pairs)
    return [by_rule] if by_rule == as_sent else [by_rule, as_sent]


def _joined(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"&".join([name + b"=" + value for name, value in sorted(pairs)])


def _encoded(text: bytes) -> bytes:
    return quote_from_bytes(unquote_to_bytes(text.replace(b"+", b" ")), safe="-_.~").encode()


def folded(value: bytes) -> bytes:
    """A header value without blanks at its ends and with single blanks inside."""
    return b" ".join(value.split())
