"""Signed requests, each part of them tampered with."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.sign_in.sigv4 import (
    SKEW_S_MAX,
    HttpRequest,
)
from auth.sign_in.sigv4_form import Refusal, SignatureError
from auth.users.records import Alter, RemoveAccessKey

from .makers import access_key, apply, directory_of, replace_user, user
from .signing import (
    DIRECTORY,
    JSON_HEADERS,
    KEY_ID,
    NOW_S,
    PRESIGNED,
    SCOPE,
    SECRET,
    STAMP,
    Signing,
    header,
    refusal_of,
    sign,
    sign_by_hand,
    verifier,
    verify,
    with_header,
)


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
