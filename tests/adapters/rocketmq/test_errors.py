"""The error tables are complete, and say what clients understand."""

from __future__ import annotations

from adapters.rocketmq.codec import stubs
from adapters.rocketmq.codec.answer_encoding import READ_WRITE
from adapters.rocketmq.errors import AUTH_CODES, KERNEL_CODES, Code, from_auth, from_kernel
from adapters.rocketmq.messages.stored import GZIP, IDENTITY
from adapters.rocketmq.messages.topic_types import MessageType
from adapters.rocketmq.topics.routes import DOMAIN_NAME, IPV4, IPV6
from auth.errors import AuthCode, AuthError
from kernel.common.errors import Code as KernelCode
from kernel.common.errors import KernelError

SUCCESSES = {Code.OK, Code.MULTIPLE_RESULTS, Code.MESSAGE_NOT_FOUND}


def test_every_error_of_the_kernel_has_a_code() -> None:
    assert set(KERNEL_CODES) == set(KernelCode)


def test_every_error_of_auth_has_a_code() -> None:
    assert set(AUTH_CODES) == set(AuthCode)


def test_no_error_is_told_as_a_success() -> None:
    assert not SUCCESSES & {*KERNEL_CODES.values(), *AUTH_CODES.values()}


def test_the_text_reaches_the_client() -> None:
    told = from_kernel(KernelError(KernelCode.NO_SPACE, "free disk is below the mark"))
    assert (told.code, told.message) == (Code.HA_NOT_AVAILABLE, "free disk is below the mark")
    refused = from_auth(AuthError(AuthCode.BAD_CREDENTIALS, "no"))
    assert (refused.code, refused.message) == (Code.UNAUTHORIZED, "no")


def test_what_passes_by_waiting_makes_clients_wait() -> None:
    for code in (KernelCode.BUSY, KernelCode.LIMIT_EXCEEDED, KernelCode.REJECTED):
        assert KERNEL_CODES[code] is Code.TOO_MANY_REQUESTS


def test_numbers_are_those_of_the_definition() -> None:
    codes = stubs.enum_values("Code")
    assert {each.name: each.value for each in Code}.items() <= codes.items()
    types = stubs.enum_values("MessageType")
    assert types == {
        "MESSAGE_TYPE_UNSPECIFIED" if not each.value else each.name: each.value
        for each in MessageType
    }
    assert stubs.enum_values("Encoding") == {
        "ENCODING_UNSPECIFIED": 0,
        "IDENTITY": IDENTITY,
        "GZIP": GZIP,
    }
    schemes = stubs.enum_values("AddressScheme")
    assert (schemes["IPv4"], schemes["IPv6"], schemes["DOMAIN_NAME"]) == (IPV4, IPV6, DOMAIN_NAME)
    assert stubs.enum_values("Permission")["READ_WRITE"] == READ_WRITE
    assert stubs.enum_values("DigestType")["MD5"] == 2
    assert stubs.enum_values("Language")["NODE_JS"] == 8
    assert stubs.enum_values("FilterType")["TAG"] == 1
    assert max(stubs.enum_values("ClientType").values()) == 6
