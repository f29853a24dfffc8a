"""Pre-signed requests; trusted hosts, modes and bounds of the verifier."""

from __future__ import annotations

from datetime import timedelta

import pytest

from auth.principal import SignInMode
from auth.sign_in.sigv4 import (
    DEFAULT_REGION,
    SKEW_S_MAX,
    TRUSTED_HOSTS_MAX,
    HttpRequest,
    SignedIdentity,
)
from auth.sign_in.sigv4_form import QUERY_PAIRS_MAX, Refusal, SignatureError

from .signing import (
    DIRECTORY,
    KEY_ID,
    NOW,
    NOW_S,
    PRESIGNED,
    PRESIGNING,
    Signing,
    refusal_of,
    sign,
    verifier,
    verify,
    with_header,
)


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
    monkeypatch.setattr("auth.sign_in.sigv4.SIGNERS_MAX", 3)
    monkeypatch.setattr("auth.sign_in.sigv4.CLAIMS_MAX", 3)
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
