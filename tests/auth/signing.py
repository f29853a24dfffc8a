"""Requests signed by botocore's own signer, or by hand, for the tests of auth.sign_in.sigv4."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.credentials import Credentials

from auth.principal import SignInMode
from auth.sign_in.sigv4 import (
    HttpRequest,
    SignedIdentity,
    SigV4Verifier,
)
from auth.sign_in.sigv4_form import Refusal, SignatureError
from auth.users.directory import Directory

from .makers import access_key, directory_of, user

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


PRESIGNING = Signing(
    "GET",
    "http://localhost:9324/000000000000/q?Action=ReceiveMessage&Version=2012-11-05",
    {},
    b"",
    expires_s=3_600,
)
PRESIGNED = sign(PRESIGNING)
