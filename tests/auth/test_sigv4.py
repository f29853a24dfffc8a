"""What botocore signs is accepted, whatever it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import boto3
import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.sign_in.sigv4 import (
    HttpRequest,
)
from auth.sign_in.sigv4_form import Refusal, SignatureError

from .signing import (
    BODY,
    DIRECTORY,
    JSON_HEADERS,
    KEY_ID,
    NOW,
    NOW_S,
    SECRET,
    Signing,
    as_received,
    header,
    refusal_of,
    sign,
    verifier,
    verify,
    with_header,
)

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
