from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocketmq.v5.util.signature import Signature

from auth.errors import AuthCode, AuthError
from auth.principal import SignInMode
from auth.sign_in.mqv2 import HEADER_CHARACTERS_MAX, SKEW_MS_MIN, MqV2Verifier
from auth.users.directory import Directory
from auth.users.records import Alter, RemoveAccessKey

from .makers import access_key, apply, directory_of, user

STORE, DIRECTORY = directory_of(user("alice"), access_key("AK1", "alice", b"hush-hush"))
STAMP = "20261121T103000Z"
STAMP_MS = int(datetime(2026, 11, 21, 10, 30, tzinfo=UTC).timestamp() * 1_000)


def verifier(
    mode: SignInMode = SignInMode.VERIFY,
    skew_ms_max: int | None = None,
    directory: Directory = DIRECTORY,
) -> MqV2Verifier:
    return MqV2Verifier(directory.access_key, directory.secret_of, mode, skew_ms_max)


def signed(key_id: str = "AK1", secret: str = "hush-hush", stamp: str = STAMP) -> str:
    signature = Signature.sign(secret, stamp)
    return (
        f"MQv2-HMAC-SHA1 Credential={key_id}, SignedHeaders=x-mq-date-time, Signature={signature}"
    )


def refusal(
    check: MqV2Verifier, authorization: str | None, stamp: str | None, now_ms: int = 0
) -> AuthCode:
    with pytest.raises(AuthError) as caught:
        check.verify(authorization, stamp, now_ms)
    assert "hush-hush" not in caught.value.message
    return caught.value.code


def test_what_the_python_client_sends_is_accepted() -> None:
    credentials = SimpleNamespace(ak="AK1", sk="hush-hush")
    config = SimpleNamespace(credentials=credentials, namespace="")
    metadata = dict(Signature.metadata(config, "client-1"))
    key = verifier().verify(metadata["authorization"], metadata["x-mq-date-time"], 0)
    assert key is DIRECTORY.access_key("AK1")


def test_hex_may_be_of_either_case_and_the_credential_may_have_more_parts() -> None:
    head, _, signature = signed().rpartition("=")
    assert verifier().verify(f"{head}={signature.upper()}", STAMP, 0)
    assert verifier().verify(signed().replace("AK1", "AK1/cn-1/RocketMQ"), STAMP, 0)
    assert verifier().verify(signed().replace(", ", ","), STAMP, 0)


def test_a_wrong_secret_key_time_or_signature_is_bad_credentials() -> None:
    for authorization, stamp in (
        (signed(secret="another"), STAMP),
        (signed(key_id="AK2"), STAMP),
        (signed(), "20261121T103001Z"),
        (signed()[:-1] + ("0" if signed()[-1] != "0" else "1"), STAMP),
    ):
        assert refusal(verifier(), authorization, stamp) is AuthCode.BAD_CREDENTIALS


def test_a_client_without_credentials_is_asked_to_sign_in() -> None:
    empty = signed(key_id="", secret="")
    for authorization in (None, "", "MQv2-HMAC-SHA1", empty):
        assert refusal(verifier(), authorization, STAMP) is AuthCode.BAD_CREDENTIALS


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic Zm9v",
        signed().replace("SHA1", "SHA256"),
        signed() + ", Credential=AK9",
        signed()[:-1],
        signed() + "g",
        signed().replace("Signature", "Sig"),
        signed() + " " * HEADER_CHARACTERS_MAX,
    ],
)
def test_a_header_of_another_form_is_refused(authorization: str) -> None:
    assert refusal(verifier(), authorization, STAMP) is AuthCode.INVALID_ARGUMENT


@pytest.mark.parametrize("stamp", [None, ""])
def test_a_signature_over_no_time_is_refused(stamp: str | None) -> None:
    assert refusal(verifier(), signed(stamp=""), stamp) is AuthCode.INVALID_ARGUMENT


def test_any_time_is_accepted_without_a_window() -> None:
    assert verifier().verify(signed(), STAMP, STAMP_MS + 10**12)


@pytest.mark.parametrize("hours", [-14, -8, 0, 5, 14])
def test_local_time_of_any_zone_is_inside_the_narrowest_window(hours: int) -> None:
    local = datetime(2026, 11, 21, 10, 30, tzinfo=UTC) + timedelta(hours=hours)
    stamp = local.strftime("%Y%m%dT%H%M%SZ")
    assert verifier(skew_ms_max=SKEW_MS_MIN).verify(signed(stamp=stamp), stamp, STAMP_MS)


def test_a_time_outside_the_window_or_no_time_at_all_is_refused() -> None:
    check = verifier(skew_ms_max=SKEW_MS_MIN)
    late_ms = STAMP_MS + SKEW_MS_MIN + 1
    assert refusal(check, signed(), STAMP, late_ms) is AuthCode.BAD_CREDENTIALS
    for stamp in ("yesterday", "20261321T000000Z", "00001121T103000Z", "20261100T000000Z"):
        assert refusal(check, signed(stamp=stamp), stamp, STAMP_MS) is AuthCode.INVALID_ARGUMENT


def test_a_window_that_honest_clients_miss_cannot_be_set() -> None:
    with pytest.raises(AuthError) as caught:
        verifier(skew_ms_max=SKEW_MS_MIN - 1)
    assert caught.value.code is AuthCode.INVALID_ARGUMENT


def test_identify_believes_the_name_and_off_reads_nothing() -> None:
    wrong = signed(secret="another")
    assert verifier(SignInMode.IDENTIFY).verify(wrong, STAMP, 0) is DIRECTORY.access_key("AK1")
    assert verifier(SignInMode.IDENTIFY).verify(signed(key_id="AK2"), STAMP, 0) is None
    for nonsense in (None, "", "nonsense"):
        assert verifier(SignInMode.IDENTIFY).verify(nonsense, None, 0) is None
        assert verifier(SignInMode.OFF).verify(nonsense, None, 0) is None
    assert verifier(SignInMode.OFF).verify(signed(), STAMP, 0) is None


def test_a_renewed_or_removed_key_is_effective_at_once() -> None:
    store, directory = directory_of(user("alice"), access_key("AK1", "alice", b"hush-hush"))
    check = verifier(directory=directory)
    assert check.verify(signed(), STAMP, 0)
    renewed = access_key("AK1", "alice", b"another")
    apply(store, Alter(msgspec.structs.replace(renewed, version=1)))
    assert refusal(check, signed(), STAMP) is AuthCode.BAD_CREDENTIALS
    assert check.verify(signed(secret="another"), STAMP, 0)
    apply(store, RemoveAccessKey("AK1"))
    assert refusal(check, signed(secret="another"), STAMP) is AuthCode.BAD_CREDENTIALS


def test_the_number_of_prepared_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auth.sign_in.mqv2.KEYS_CACHED_MAX", 2)
    _, directory = directory_of(
        user("alice"), *(access_key(f"AK{n}", "alice", b"hush-hush") for n in range(5))
    )
    check = verifier(directory=directory)
    for _ in range(2):
        for number in range(5):
            assert check.verify(signed(key_id=f"AK{number}"), STAMP, 0)
            assert len(check._ready) <= 2


@given(st.data())
def test_a_mutated_header_is_refused_by_the_designed_error_only(data: st.DataObject) -> None:
    text = signed()
    position = data.draw(st.integers(0, len(text)))
    text = text[:position] + data.draw(st.text(max_size=3)) + text[position + 1 :]
    try:
        assert verifier().verify(text, STAMP, 0) is DIRECTORY.access_key("AK1")
    except AuthError:
        pass


@given(st.text(max_size=80), st.text(max_size=30))
def test_garbage_is_refused_by_the_designed_error_only(header: str, stamp: str) -> None:
    with pytest.raises(AuthError):
        verifier(skew_ms_max=SKEW_MS_MIN).verify("MQv2-HMAC-SHA1 " + header, stamp, 0)
