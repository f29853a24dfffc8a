"""Signatures made by botocore's own signer, verified; then each part of them tampered with."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

import boto3
import botocore.auth
import msgspec
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.directory import Directory
from auth.principal import SignInMode
from auth.records import Alter, RemoveAccessKey
from auth.sigv4 import (
    DEFAULT_REGION,
    SKEW_S_MAX,
    TRUSTED_HOSTS_MAX,
    HttpRequest,
    SignedIdentity,
    SigV4Verifier,
)
from auth.sigv4_form import QUERY_PAIRS_MAX, Refusal, SignatureError

from .makers import access_key, apply, directory_of, replace_user, user

NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY_ID = "AKIDEXAMPLE"
STORE, DIRECTORY = directory_of(user("alice"), access_key(KEY_ID, "alice", SECRET.encode()))
BODY = b'{"QueueUrl":"http://localhost:9324/000000000000/q","MessageBody":"hello"}'
JSON_HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "AmazonSQS.SendMessage",
    "x-amzn-query-mode": "true",
}


class Signing(NamedTuple):
    """Everything a signer is told."""

    method: str = "POST"
    url: str = "http://localhost:9324/"
    headers: Mapping[str, str] = JSON_HEADERS
    body: bytes = BODY
    params: Mapping[str, str] = MappingProxyType({})
    key_id: str = KEY_ID
    secret: str = SECRET
    region: str = "eu-west-1"
    service: str = "sqs"
    token: str | None = None
    at: datetime = NOW
    expires_s: int | None = None
    """Pre-signed if not None."""


def sign(signing: Signing) -> HttpRequest:
    """The request as the server gets it, signed by botocore."""
    request = AWSRequest(
        signing.method,
        signing.url,
        headers=dict(signing.headers),
        data=signing.body,
        params=dict(signing.params),
    )
    credentials = Credentials(signing.key_id, signing.secret, signing.token)
    signer: SigV4Auth = (
        SigV4Auth(credentials, signing.service, signing.region)
        if signing.expires_s is None
        else SigV4QueryAuth(credentials, signing.service, signing.region, signing.expires_s)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            botocore.auth, "get_current_datetime", lambda: signing.at.replace(tzinfo=None)
        )
        signer.add_auth(request)
    return as_received(request.prepare())


def as_received(prepared: AWSPreparedRequest) -> HttpRequest:
    url = urlsplit(prepared.url)
    headers = {name.lower().encode(): as_bytes(value) for name, value in prepared.headers.items()}
    headers.setdefault(b"host", url.netloc.encode())
    return HttpRequest(
        prepared.method,
        url.path.encode(),
        url.query.encode(),
        list(headers.items()),
        as_bytes(prepared.body or b""),
    )


def as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def verifier(
    mode: SignInMode = SignInMode.VERIFY,
    *,
    directory: Directory = DIRECTORY,
    allow_unsigned_payload: bool = False,
    trusted_hosts: tuple[str, ...] = (),
) -> SigV4Verifier:
    return SigV4Verifier(
        directory.access_key,
        directory.secret_of,
        mode,
        allow_unsigned_payload=allow_unsigned_payload,
        trusted_hosts=trusted_hosts,
    )


def verify(request: HttpRequest, now_s: int = NOW_S) -> SignedIdentity:
    return verifier().verify(request, now_s)


def refusal_of(
    request: HttpRequest, now_s: int = NOW_S, *, allow_unsigned_payload: bool = False
) -> Refusal:
    with pytest.raises(SignatureError) as caught:
        verifier(allow_unsigned_payload=allow_unsigned_payload).verify(request, now_s)
    assert SECRET not in caught.value.message
    return caught.value.refusal


def with_header(request: HttpRequest, name: bytes, value: bytes | None) -> HttpRequest:
    """Another value of a header, or None to leave it out."""
    headers = [pair for pair in request.headers if pair[0] != name]
    if value is not None:
        headers.append((name, value))
    return request._replace(headers=headers)


def header(request: HttpRequest, name: bytes) -> bytes:
    return dict(request.headers)[name]


# ------------------------------------------------------------------ what must be accepted

PATHS = [
    "",
    "/",
    "/000000000000/orders.fifo",
    "//double//slashes///",
    "/a/./b/../c",
    "/../..",
    "/trailing/",
    "/./",
    "/percent%20encoded",
    "/per%2Fcent",
    "/lower%2f",
    "/a b",
    "/tilde~dash-dot.under_",
    "/.hidden",
    "/..almost",
    "/semi;colon=1,2",
    "/at@colon:",
    "/ünï",
    "/%E2%82%AC",
    "/star*bang!quote'()",
    "/$&+",
]


@pytest.mark.parametrize("path", PATHS)
def test_any_path_as_botocore_signs_it(path: str) -> None:
    request = sign(Signing(url="http://localhost:9324" + path.replace(" ", "%20")))
    assert verify(request).key is DIRECTORY.access_key(KEY_ID)


QUERIES = [
    "Action=ListQueues&Version=2012-11-05",
    "b=2&a=1&c=3",
    "a=2&a=1&a=10",
    "a",
    "a=",
    "=a",
    "a&b&c",
    "a=1&&b=2",
    "a=b=c",
    "plus=a+b",
    "plus=a%2Bb",
    "blank=a%20b",
    "unicode=%E2%82%AC",
    "lower=%e2%82%ac",
    "needless=%41%42",
    "unescaped=:/?@!$'()*,;",
    "MessageBody=%7B%22a%22%3A1%7D",
    "A=1&a=2&B=3&_=4&-=5&~=6",
    "a-b=1&a=2&a.b=3",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_query_as_botocore_signs_it(method: str, query: str) -> None:
    assert verify(sign(Signing(method, f"http://localhost:9324/?{query}"))).is_verified


@pytest.mark.parametrize(
    "params",
    [
        {"Action": "SendMessage", "MessageBody": "a b+c&d=e/f?~"},
        {"": "", " ": ""},
        {"Zoë": "€", "": "empty name", "empty value": ""},
        {f"Attribute.{n}.Name": "x" * n for n in range(1, 30)},
    ],
)
def test_parameters_that_botocore_encodes_itself(params: dict[str, str]) -> None:
    assert verify(sign(Signing("GET", body=b"", params=params))).is_verified


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "  ends  ",
        "many   blanks  inside",
        "tab\tand \t both",
        "a,b, c",
        '"quoted  text"',
        "",
    ],
)
def test_header_values_are_folded_as_botocore_folds_them(value: str) -> None:
    request = sign(Signing(headers={**JSON_HEADERS, "X-Custom": value}))
    request = with_header(request, b"x-custom", value.encode())
    assert verify(request).is_verified


def test_a_repeated_header_is_signed_as_one_list() -> None:
    request = AWSRequest("POST", "http://localhost:9324/", data=BODY)
    request.headers["X-Multi"] = "one   two"
    request.headers["X-Multi"] = " three "
    signer = SigV4Auth(Credentials(KEY_ID, SECRET), "sqs", "eu-west-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None))
        signer.add_auth(request)
    received = as_received(request.prepare())
    headers = [pair for pair in received.headers if pair[0] != b"x-multi"]
    headers += [(b"x-multi", b"one   two"), (b"x-multi", b" three ")]
    assert verify(received._replace(headers=headers)).is_verified


@pytest.mark.parametrize("body", [b"", b"\0\xff" * 500, BODY, b"x" * 1_048_576])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_any_body_and_method(method: str, body: bytes) -> None:
    assert verify(sign(Signing(method, body=body))).is_verified


def test_the_order_in_which_headers_arrive_does_not_matter() -> None:
    request = sign(Signing())
    assert verify(request._replace(headers=list(reversed(request.headers)))).is_verified


def test_headers_that_are_not_signed_may_be_added_on_the_way() -> None:
    request = sign(Signing())
    for name in (b"user-agent", b"x-forwarded-for", b"x-amzn-trace-id", b"amz-sdk-request"):
        request = with_header(request, name, b"anything")
    assert verify(request).is_verified


def test_a_date_header_stands_for_x_amz_date() -> None:
    request = sign(Signing(headers={"Date": "now"}))
    assert b"x-amz-date" not in dict(request.headers)
    assert verify(request).is_verified
    later = with_header(request, b"date", b"Sat, 21 Nov 2026 10:31:00 GMT")
    assert refusal_of(later) is Refusal.MISMATCH
    odd = with_header(request, b"date", b"21.11.2026")
    assert refusal_of(odd) is Refusal.INCOMPLETE


def test_a_signed_session_token_is_part_of_the_signature() -> None:
    request = sign(Signing(token="some/token=="))
    assert verify(request).is_verified
    other = with_header(request, b"x-amz-security-token", b"another")
    assert refusal_of(other) is Refusal.MISMATCH


def test_the_region_is_taken_from_the_signature() -> None:
    for region in ("eu-west-1", "us-gov-west-1", "local"):
        identity = verify(sign(Signing(region=region)))
        assert (identity.region, identity.is_verified) == (region, True)


def test_blanks_between_the_fields_may_be_missing_and_their_order_is_free() -> None:
    request = sign(Signing())
    text = header(request, b"authorization")
    scheme, _, fields = text.partition(b" ")
    one, two, three = fields.split(b", ")
    for fields in (b",".join((one, two, three)), b", ".join((three, one, two))):
        changed = with_header(request, b"authorization", scheme + b" " + fields)
        check = verifier()
        assert check.verify(changed, NOW_S).is_verified
        assert check.verify(changed, NOW_S).is_verified


@settings(max_examples=200)
@given(
    path=st.lists(st.text("aZ9-_.~% /é", max_size=6), max_size=4),
    params=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        max_size=5,
    ),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    body=st.binary(max_size=100),
    region=st.sampled_from(["us-east-1", "eu-central-1"]),
    presigned=st.booleans(),
)
def test_whatever_botocore_signs_is_accepted(
    path: list[str], params: dict[str, str], value: str, body: bytes, region: str, presigned: bool
) -> None:
    url = "http://localhost:9324/" + "/".join(path).replace("%", "%25").replace(" ", "%20")
    signing = Signing(
        "GET" if presigned else "POST",
        url,
        {"X-Custom": value},
        b"" if presigned else body,
        params,
        region=region,
        expires_s=60 if presigned else None,
    )
    assert verify(sign(signing)).is_verified


SHARED = verifier()


@settings(max_examples=100)
@given(
    st.integers(0, 86_399 * 3), st.sampled_from(["us-east-1", "eu-west-1"]), st.binary(max_size=9)
)
def test_kept_keys_and_headers_never_change_the_answer(
    seconds: int, region: str, body: bytes
) -> None:
    at = NOW + timedelta(seconds=seconds)
    at_s = int(at.timestamp())
    good = sign(Signing(at=at, region=region, body=body))
    bad = sign(Signing(at=at, region=region, body=body, secret="wrong"))
    assert SHARED.verify(good, at_s).region == region
    with pytest.raises(SignatureError):
        SHARED.verify(bad, at_s)
    with pytest.raises(SignatureError):
        SHARED.verify(good._replace(body=body + b"x"), at_s)


# ------------------------------------------------------------------ real clients


def test_what_boto3_sends_is_accepted() -> None:
    sent = []
    client = boto3.client(
        "sqs",
        endpoint_url="http://localhost:9324",
        region_name="eu-west-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )

    def catch(request: AWSPreparedRequest, **_: object) -> object:
        sent.append(as_received(request))
        return botocore.awsrequest.AWSResponse("http://localhost", 200, HTTPHeaders(), _Empty())

    client.meta.events.register("before-send.sqs", catch)
    client.send_message(
        QueueUrl="http://localhost:9324/000000000000/q",
        MessageBody="grüße  €",
        MessageAttributes={"a": {"DataType": "String", "StringValue": "b  c"}},
    )
    client.list_queues()
    now_s = int(datetime.now(UTC).timestamp())
    assert len(sent) == 2
    assert all(verify(request, now_s).is_verified for request in sent)
    assert header(sent[0], b"x-amz-target") == b"AmazonSQS.SendMessage"


class _Empty:
    """The body of an empty answer, as urllib3 gives it."""

    def stream(self, **_: object) -> list[bytes]:
        return [b"{}"]


def test_a_url_that_boto3_pre_signed_is_accepted() -> None:
    client = boto3.client(
        "sqs",
        endpoint_url="http://localhost:9324",
        region_name="eu-west-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )
    url = urlsplit(client.generate_presigned_url("list_queues", {"QueueNamePrefix": "a b"}))
    # boto3 moves the parameters from the body to the query and signs its JSON headers along.
    request = HttpRequest(
        "POST",
        url.path.encode(),
        url.query.encode(),
        [
            (b"host", b"localhost:9324"),
            (b"content-type", b"application/x-amz-json-1.0"),
            (b"x-amz-target", b"AmazonSQS.ListQueues"),
            (b"x-amzn-query-mode", b"true"),
        ],
        b"",
    )
    now_s = int(datetime.now(UTC).timestamp())
    assert verify(request, now_s).is_verified
    assert refusal_of(with_header(request, b"x-amz-target", b"a"), now_s) is Refusal.MISMATCH


# ------------------------------------------------------------------ what must be refused


def test_every_byte_of_the_signature_counts() -> None:
    request = sign(Signing())
    text = header(request, b"authorization")
    check = verifier()
    check.verify(request, NOW_S)
    for position in range(len(text) - 64, len(text)):
        wrong = b"0" if text[position : position + 1] != b"0" else b"1"
        changed = text[:position] + wrong + text[position + 1 :]
        with pytest.raises(SignatureError) as caught:
            check.verify(with_header(request, b"authorization", changed), NOW_S)
        assert caught.value.refusal is Refusal.MISMATCH


def test_tampering_with_any_signed_part_is_a_mismatch() -> None:
    good = sign(Signing(url="http://localhost:9324/000000000000/q?Action=SendMessage"))
    check = verifier()
    check.verify(good, NOW_S)
    authorization = header(good, b"authorization")
    tampered = {
        "method": good._replace(method="GET"),
        "path": good._replace(raw_path=b"/000000000000/other"),
        "query value": good._replace(query=b"Action=DeleteQueue"),
        "query added": good._replace(query=good.query + b"&a=b"),
        "query gone": good._replace(query=b""),
        "body": good._replace(body=good.body + b" "),
        "host": with_header(good, b"host", b"evil:9324"),
        "action": with_header(good, b"x-amz-target", b"AmazonSQS.DeleteQueue"),
        "content type": with_header(good, b"content-type", b"text/plain"),
        "date": with_header(good, b"x-amz-date", b"20261121T103001Z"),
        "doubled header": good._replace(headers=[*good.headers, (b"x-amzn-query-mode", b"x")]),
        "region": with_header(
            good, b"authorization", authorization.replace(b"eu-west-1", b"us-east-1")
        ),
        "fewer signed headers": with_header(
            good, b"authorization", authorization.replace(b";x-amzn-query-mode", b"")
        ),
    }
    for what, request in tampered.items():
        with pytest.raises(SignatureError) as caught:
            check.verify(request, NOW_S)
        assert caught.value.refusal is Refusal.MISMATCH, what
    assert check.verify(good, NOW_S).is_verified


def test_a_wrong_secret_is_a_mismatch_and_shows_what_was_signed() -> None:
    with pytest.raises(SignatureError) as caught:
        verify(sign(Signing(secret="wrong")))
    error = caught.value
    assert (error.refusal.aws_code, error.refusal.http_status) == ("SignatureDoesNotMatch", 403)
    assert error.canonical_request is not None
    assert error.canonical_request.startswith(
        b"POST\n/\n\ncontent-type:application/x-amz-json-1.0\n"
    )


def test_an_unknown_disabled_or_removed_key_is_an_invalid_client() -> None:
    store, directory = directory_of(user("alice"), access_key(KEY_ID, "alice", SECRET.encode()))
    check = verifier(directory=directory)
    good = sign(Signing())
    assert check.verify(good, NOW_S).is_verified
    assert refusal_of(sign(Signing(key_id="AKIDOTHER"))) is Refusal.UNKNOWN_KEY
    replace_user(store, user("alice", enabled=False))
    with pytest.raises(SignatureError) as caught:
        check.verify(good, NOW_S)
    assert caught.value.refusal is Refusal.UNKNOWN_KEY
    replace_user(store, user("alice"))
    assert check.verify(good, NOW_S).is_verified
    apply(store, RemoveAccessKey(KEY_ID))
    with pytest.raises(SignatureError) as caught:
        check.verify(good, NOW_S)
    assert caught.value.refusal is Refusal.UNKNOWN_KEY


def test_a_renewed_secret_is_effective_at_once() -> None:
    store, directory = directory_of(user("alice"), access_key(KEY_ID, "alice", SECRET.encode()))
    check = verifier(directory=directory)
    good = sign(Signing())
    check.verify(good, NOW_S)
    renewed = access_key(KEY_ID, "alice", b"renewed")
    apply(store, Alter(msgspec.structs.replace(renewed, version=1)))
    with pytest.raises(SignatureError) as caught:
        check.verify(good, NOW_S)
    assert caught.value.refusal is Refusal.MISMATCH
    assert check.verify(sign(Signing(secret="renewed")), NOW_S).is_verified


@pytest.mark.parametrize("drift_s", [-SKEW_S_MAX, SKEW_S_MAX])
def test_clocks_may_differ_by_fifteen_minutes_and_no_more(drift_s: int) -> None:
    request = sign(Signing())
    assert verify(request, NOW_S + drift_s).is_verified
    beyond = drift_s + (1 if drift_s > 0 else -1)
    assert refusal_of(request, NOW_S + beyond) is Refusal.EXPIRED


def test_a_request_around_midnight_is_judged_by_its_own_day() -> None:
    at = datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC)
    request = sign(Signing(at=at))
    assert verify(request, int(at.timestamp()) + 120).is_verified


def test_a_request_without_a_signature_is_told_so() -> None:
    request = with_header(sign(Signing()), b"authorization", None)
    assert refusal_of(request) is Refusal.MISSING


def test_every_amz_header_must_be_signed() -> None:
    added = with_header(sign(Signing(headers={})), b"x-amz-target", b"AmazonSQS.DeleteQueue")
    assert refusal_of(added) is Refusal.MISMATCH
    presigned = sign(Signing("GET", headers={}, body=b"", expires_s=60))
    added = with_header(presigned, b"x-amz-target", b"AmazonSQS.DeleteQueue")
    assert refusal_of(added) is Refusal.MISMATCH


AUTHORIZATION = header(sign(Signing()), b"authorization")


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        (b"AWS4-HMAC-SHA256", b"AWS4-HMAC-SHA1", Refusal.INCOMPLETE),
        (b"AWS4-HMAC-SHA256", b"Basic", Refusal.INCOMPLETE),
        (b"Credential=", b"Cred=", Refusal.INCOMPLETE),
        (b"SignedHeaders=", b"Headers=", Refusal.INCOMPLETE),
        (b", Signature=", b", Sig=", Refusal.INCOMPLETE),
        (b"/aws4_request", b"", Refusal.INCOMPLETE),
        (b"/aws4_request", b"/aws5_request", Refusal.MISMATCH),
        (b"/sqs/", b"/s3/", Refusal.MISMATCH),
        (b"/20261121/", b"/20261120/", Refusal.MISMATCH),
        (b"/20261121/", b"/today/", Refusal.INCOMPLETE),
        (b"/eu-west-1/", b"//", Refusal.INCOMPLETE),
        (b"/eu-west-1/", b"/\xff/", Refusal.INCOMPLETE),
        (KEY_ID.encode(), b"", Refusal.UNKNOWN_KEY),
        (KEY_ID.encode(), b"\xff", Refusal.UNKNOWN_KEY),
        (b"host;", b"", Refusal.INCOMPLETE),
        (b"host;", b"host;host;", Refusal.INCOMPLETE),
        (b"host;", b"Host;", Refusal.INCOMPLETE),
        (b"host;", b"host;x-absent;", Refusal.INCOMPLETE),
        (b"host;", b"host;" + b";".join(b"x%d" % n for n in range(70)) + b";", Refusal.INCOMPLETE),
        (b", Signature=", b", Signature=00, Signature=", Refusal.INCOMPLETE),
        (AUTHORIZATION, b"", Refusal.INCOMPLETE),
        (AUTHORIZATION, AUTHORIZATION + b"," + AUTHORIZATION, Refusal.INCOMPLETE),
    ],
)
def test_a_header_of_another_form_is_refused_by_the_right_code(
    old: bytes, new: bytes, refusal: Refusal
) -> None:
    assert old in AUTHORIZATION
    text = AUTHORIZATION.replace(old, new)
    assert refusal_of(with_header(sign(Signing()), b"authorization", text)) is refusal


@pytest.mark.parametrize(
    "stamp",
    [
        b"",
        b"20261121",
        b"2026-11-21T10:30:00Z",
        b"20261121T103000",
        b"\xff" * 16,
        b"20261121T10300xZ",
    ],
)
def test_a_time_of_another_form_is_refused(stamp: bytes) -> None:
    assert refusal_of(with_header(sign(Signing()), b"x-amz-date", stamp)) is Refusal.INCOMPLETE


def test_days_that_no_calendar_has_are_refused() -> None:
    for day in (b"20261321", b"00001121", b"20261100", b"19691231"):
        request = sign(Signing())
        text = header(request, b"authorization").replace(b"20261121", day)
        request = with_header(request, b"authorization", text)
        request = with_header(request, b"x-amz-date", day + b"T103000Z")
        assert refusal_of(request) is Refusal.INCOMPLETE


def test_without_any_date_a_signature_is_incomplete() -> None:
    assert refusal_of(with_header(sign(Signing()), b"x-amz-date", None)) is Refusal.INCOMPLETE
    unsigned = with_header(sign(Signing()), b"x-amz-date", None)
    unsigned = with_header(unsigned, b"date", b"Sat, 21 Nov 2026 10:30:00 GMT")
    assert refusal_of(unsigned) is Refusal.INCOMPLETE


def sign_by_hand(headers: dict[str, str], scope: str, timestamp: str) -> HttpRequest:
    """An empty POST signed over exactly these headers, with a scope that may be odd."""
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"POST\n/\n\n{lines}\n{names}\n{sha256(b'').hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"authorization", authorization.encode()))
    return HttpRequest("POST", b"/", b"", pairs, b"")


STAMP = "20261121T103000Z"
SCOPE = "20261121/eu-west-1/sqs/aws4_request"


def test_the_signer_of_the_next_tests_signs_rightly() -> None:
    request = sign_by_hand({"host": "localhost", "x-amz-date": STAMP}, SCOPE, STAMP)
    assert verify(request).is_verified


def test_a_key_derived_for_another_day_than_the_time_says_is_refused() -> None:
    request = sign_by_hand(
        {"host": "localhost", "x-amz-date": STAMP}, SCOPE.replace("21/", "20/"), STAMP
    )
    with pytest.raises(SignatureError, match="does not match YYYYMMDD"):
        verify(request)


@pytest.mark.parametrize(("part", "other"), [("sqs", "s3"), ("aws4_request", "aws5_request")])
def test_a_key_derived_for_another_service_is_refused(part: str, other: str) -> None:
    headers = {"host": "localhost", "x-amz-date": STAMP}
    request = sign_by_hand(headers, SCOPE.replace(part, other), STAMP)
    with pytest.raises(SignatureError, match="Credential should be scoped"):
        verify(request)


def test_a_date_that_is_there_but_not_signed_does_not_count() -> None:
    request = sign_by_hand({"host": "localhost"}, SCOPE, STAMP)
    request = with_header(request, b"date", b"Sat, 21 Nov 2026 10:30:00 GMT")
    assert refusal_of(request) is Refusal.INCOMPLETE


def test_a_header_without_host_among_the_signed_is_refused() -> None:
    request = sign_by_hand({"x-amz-date": STAMP}, SCOPE, STAMP)
    request = with_header(request, b"host", b"localhost")
    assert refusal_of(request) is Refusal.INCOMPLETE


# ------------------------------------------------------------------ payloads


def test_an_unsigned_payload_is_accepted_only_where_allowed() -> None:
    headers = {**JSON_HEADERS, "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    request = sign(Signing(headers=headers))
    with pytest.raises(SignatureError, match="does not accept unsigned payloads"):
        verify(request)
    allowing = verifier(allow_unsigned_payload=True)
    assert allowing.verify(request, NOW_S).is_verified
    assert allowing.verify(request._replace(body=b"anything"), NOW_S).is_verified


def test_signed_payloads_stay_checked_where_unsigned_ones_are_allowed() -> None:
    request = sign(Signing())
    assert refusal_of(request._replace(body=b"x"), allow_unsigned_payload=True) is Refusal.MISMATCH
    claimed = with_header(request, b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD")
    assert refusal_of(claimed, allow_unsigned_payload=True) is Refusal.MISMATCH


@pytest.mark.parametrize("claim", ["0" * 64, "", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"])
def test_a_claimed_hash_that_is_not_the_bodys_is_refused(claim: str) -> None:
    request = sign(Signing(headers={"X-Amz-Content-SHA256": claim}))
    with pytest.raises(SignatureError, match="x-amz-content-sha256"):
        verify(request)


# ------------------------------------------------------------------ pre-signed

PRESIGNING = Signing(
    "GET",
    "http://localhost:9324/000000000000/q?Action=ReceiveMessage&Version=2012-11-05",
    {},
    b"",
    expires_s=3_600,
)
PRESIGNED = sign(PRESIGNING)


def test_a_pre_signed_get_is_accepted_until_it_expires() -> None:
    assert verify(PRESIGNED).region == "eu-west-1"
    assert verify(PRESIGNED, NOW_S + 3_600).is_verified
    assert refusal_of(PRESIGNED, NOW_S + 3_601) is Refusal.EXPIRED
    assert verify(PRESIGNED, NOW_S - SKEW_S_MAX).is_verified
    assert refusal_of(PRESIGNED, NOW_S - SKEW_S_MAX - 1) is Refusal.EXPIRED


@pytest.mark.parametrize(
    "query", ["a=b+c", "plus=%2B", "lower=%e2%82%ac", "empty=&flag", "n=%41", "q=a%20b", "s=*'()!"]
)
def test_a_pre_signed_get_with_any_query(query: str) -> None:
    url = "http://localhost:9324/?" + query
    assert verify(sign(PRESIGNING._replace(url=url))).is_verified


def test_a_pre_signed_get_with_a_session_token_and_signed_headers() -> None:
    request = sign(PRESIGNING._replace(token="a/b+c==", headers={"X-Custom": "a   b"}))
    assert verify(request).is_verified
    assert refusal_of(with_header(request, b"x-custom", b"c")) is Refusal.MISMATCH


def test_tampering_with_any_part_of_a_pre_signed_request_is_refused() -> None:
    query = PRESIGNED.query
    for old, new in [
        (b"ReceiveMessage", b"PurgeQueue"),
        (b"X-Amz-Expires=3600", b"X-Amz-Expires=604800"),
        (b"T103000Z", b"T103001Z"),
        (b"eu-west-1", b"us-east-1"),
        (b"Version=2012-11-05&", b""),
        (b"Action=", b"Action=DeleteQueue&Action="),
    ]:
        assert old in query
        changed = PRESIGNED._replace(query=query.replace(old, new))
        assert refusal_of(changed) is Refusal.MISMATCH, old
    for position in range(len(query) - 64, len(query)):
        wrong = b"0" if query[position : position + 1] != b"0" else b"1"
        changed = PRESIGNED._replace(query=query[:position] + wrong + query[position + 1 :])
        assert refusal_of(changed) is Refusal.MISMATCH
    for changed in (
        PRESIGNED._replace(method="POST"),
        PRESIGNED._replace(raw_path=b"/000000000000/r"),
        PRESIGNED._replace(body=b"x"),
        with_header(PRESIGNED, b"host", b"evil"),
        PRESIGNED._replace(query=query + b"&a=b"),
    ):
        assert refusal_of(changed) is Refusal.MISMATCH


@pytest.mark.parametrize(
    "field",
    [
        b"X-Amz-Algorithm",
        b"X-Amz-Credential",
        b"X-Amz-Date",
        b"X-Amz-Expires",
        b"X-Amz-SignedHeaders",
        b"X-Amz-Signature",
    ],
)
def test_a_pre_signed_field_that_is_missing_empty_or_doubled_is_incomplete(field: bytes) -> None:
    pairs = PRESIGNED.query.split(b"&")
    (own,) = (pair for pair in pairs if pair.startswith(field + b"="))
    others = [pair for pair in pairs if pair != own]
    escaped = own.replace(b"X-Amz", b"%58-Amz")
    for fields in (others, [*others, field + b"="], [*pairs, own], [*pairs, escaped]):
        changed = PRESIGNED._replace(query=b"&".join(fields))
        assert refusal_of(changed) is Refusal.INCOMPLETE


def test_an_escaped_field_name_is_the_same_name() -> None:
    query = PRESIGNED.query.replace(b"X-Amz-Signature=", b"X%2DAmz-Signature=")
    assert verify(PRESIGNED._replace(query=query)).is_verified


@pytest.mark.parametrize("expires", [b"0", b"-1", b"604801", b"abc", b"9999999", b"1.5"])
def test_a_life_of_no_or_more_than_a_week_is_refused(expires: bytes) -> None:
    query = PRESIGNED.query.replace(b"X-Amz-Expires=3600", b"X-Amz-Expires=" + expires)
    assert refusal_of(PRESIGNED._replace(query=query)) is Refusal.INCOMPLETE


def test_a_query_of_absurd_length_is_refused_unread() -> None:
    query = PRESIGNED.query + b"&a=b" * QUERY_PAIRS_MAX
    assert refusal_of(PRESIGNED._replace(query=query)) is Refusal.INCOMPLETE
    request = sign(Signing())._replace(query=b"&a=b" * QUERY_PAIRS_MAX)
    assert refusal_of(request) is Refusal.INCOMPLETE


# ------------------------------------------------------------------ proxies, modes, bounds


def test_a_trusted_host_may_have_been_signed_in_place_of_the_one_that_came() -> None:
    for signing in (
        Signing(url="http://queue.example.com/"),
        PRESIGNING._replace(url="http://queue.example.com/?a=b+c"),
    ):
        request = with_header(sign(signing), b"host", b"10.0.0.7:9324")
        assert refusal_of(request) is Refusal.MISMATCH
        trusting = verifier(trusted_hosts=("other.example.com", "queue.example.com"))
        assert trusting.verify(request, NOW_S).is_verified


def test_the_number_of_trusted_hosts_is_bounded() -> None:
    with pytest.raises(ValueError, match="at most"):
        verifier(trusted_hosts=("h",) * (TRUSTED_HOSTS_MAX + 1))


def test_identify_believes_what_a_request_says_and_off_takes_only_the_region() -> None:
    wrong = sign(Signing(secret="wrong", at=NOW - timedelta(days=300)))
    key = DIRECTORY.access_key(KEY_ID)
    identify, off = verifier(SignInMode.IDENTIFY), verifier(SignInMode.OFF)
    assert identify.verify(wrong, NOW_S) == SignedIdentity(key, "eu-west-1", is_verified=False)
    assert identify.verify(PRESIGNED, 0) == SignedIdentity(key, "eu-west-1", is_verified=False)
    assert off.verify(wrong, NOW_S) == SignedIdentity(None, "eu-west-1", is_verified=False)
    unknown = sign(Signing(key_id="test", secret="test"))
    assert identify.verify(unknown, NOW_S) == SignedIdentity(None, "eu-west-1", is_verified=False)
    nobody = SignedIdentity(None, DEFAULT_REGION, is_verified=False)
    for request in (
        with_header(wrong, b"authorization", None),
        with_header(wrong, b"authorization", b"nonsense"),
        HttpRequest("GET", b"/", b"X-Amz-Signature=1", [], b""),
        HttpRequest("GET", b"/", b"&" * 2 * QUERY_PAIRS_MAX, [], b""),
    ):
        assert identify.verify(request, NOW_S) == nobody
        assert off.verify(request, NOW_S) == nobody


def test_what_is_kept_is_bounded_and_only_of_verified_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("auth.sigv4.SIGNERS_MAX", 3)
    monkeypatch.setattr("auth.sigv4.CLAIMS_MAX", 3)
    check = verifier()
    for number in range(10):
        with pytest.raises(SignatureError):
            check.verify(sign(Signing(region=f"r-{number}", secret="wrong")), NOW_S)
    assert (len(check._signers), len(check._claims)) == (0, 0)
    check.verify(sign(Signing()), NOW_S)
    assert (len(check._signers), len(check._claims)) == (1, 1)
    for _ in range(2):
        for number in range(10):
            assert check.verify(sign(Signing(region=f"r-{number}")), NOW_S).is_verified
            assert len(check._signers) <= 3
            assert len(check._claims) <= 3


# ------------------------------------------------------------------ garbage

FUZZED = {
    "header": (sign(Signing()), b"authorization"),
    "date": (sign(Signing()), b"x-amz-date"),
    "query": (PRESIGNED, None),
}


@pytest.mark.parametrize("part", FUZZED)
@given(data=st.data())
def test_a_mutated_request_is_refused_by_the_designed_error_only(
    part: str, data: st.DataObject
) -> None:
    request, name = FUZZED[part]
    text = request.query if name is None else header(request, name)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    mutated = text[:start] + data.draw(st.binary(max_size=8)) + text[end:]
    changed = (
        request._replace(query=mutated) if name is None else with_header(request, name, mutated)
    )
    try:
        identity = verify(changed)
    except SignatureError:
        return
    # Accepted only where the change says the same: blanks, escapes, order.
    assert identity.key is DIRECTORY.access_key(KEY_ID)


@given(
    st.text(max_size=5),
    st.binary(max_size=20),
    st.binary(max_size=60),
    st.lists(
        st.tuples(
            st.sampled_from([b"authorization", b"host", b"x-amz-date", b"x-amz-x", b"date"]),
            st.binary(max_size=60) | st.binary(max_size=30).map(b"AWS4-HMAC-SHA256 ".__add__),
        ),
        max_size=6,
    ),
)
def test_garbage_is_refused_by_the_designed_error_only(
    method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    with pytest.raises(SignatureError):
        verify(HttpRequest(method, path, query, headers, b""))
