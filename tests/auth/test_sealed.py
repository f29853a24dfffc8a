from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.errors import AuthCode, AuthError
from auth.private_files.files import FILE_BYTES_MAX, create_private, read_private
from auth.private_files.sealed import KEYS_MAX, SECRET_BYTES_MAX, KeyRing, open_key_ring

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
RING = KeyRing({0xAABBCCDD: OLD})
SEALED = RING.seal(b"the secret", b"context")


@given(st.binary(min_size=1, max_size=SECRET_BYTES_MAX), st.binary(max_size=64))
def test_a_sealed_secret_opens_in_its_own_context(secret: bytes, context: bytes) -> None:
    envelope = RING.seal(secret, context)
    assert RING.unseal(envelope, context) == secret
    assert secret not in envelope or len(secret) < 4
    assert len(envelope) == len(secret) + 33


def test_the_envelope_is_as_drawn() -> None:
    ring = KeyRing({0xAABBCCDD: OLD}, random_bytes=lambda count: b"n" * count)
    envelope = ring.seal(b"s", b"")
    assert envelope[:17] == b"\x01\xaa\xbb\xcc\xdd" + b"n" * 12


def test_equal_secrets_have_different_envelopes() -> None:
    assert RING.seal(b"s", b"c") != RING.seal(b"s", b"c")


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_an_altered_envelope_does_not_open(position: int, change: int) -> None:
    altered = bytearray(SEALED)
    altered[position] ^= change
    with pytest.raises(AuthError) as caught:
        RING.unseal(bytes(altered), b"context")
    assert caught.value.code is AuthCode.DAMAGED


@pytest.mark.parametrize("length", range(len(SEALED)))
def test_a_cut_envelope_does_not_open(length: int) -> None:
    with pytest.raises(AuthError) as caught:
        RING.unseal(SEALED[:length], b"context")
    assert caught.value.code is AuthCode.DAMAGED


def test_an_envelope_does_not_open_in_another_context() -> None:
    with pytest.raises(AuthError):
        RING.unseal(SEALED, b"another context")


@pytest.mark.parametrize("secret", [b"", b"x" * (SECRET_BYTES_MAX + 1)])
def test_a_secret_of_no_or_absurd_length_is_not_sealed(secret: bytes) -> None:
    with pytest.raises(AuthError) as caught:
        RING.seal(secret, b"")
    assert caught.value.code is AuthCode.INVALID_ARGUMENT


def test_after_rotation_old_envelopes_open_and_new_ones_need_the_new_key() -> None:
    rotated = KeyRing({0xAABBCCDD: OLD, 7: NEW})
    assert rotated.unseal(SEALED, b"context") == b"the secret"
    fresh = rotated.seal(b"s", b"c")
    with pytest.raises(AuthError) as caught:
        RING.unseal(fresh, b"c")
    assert "00000007" in caught.value.message


def test_a_key_file_is_made_once_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "sealing.keys"
    envelope = open_key_ring(path).seal(b"s", b"c")
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    assert open_key_ring(path).unseal(envelope, b"c") == b"s"
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["sealing.keys"]


def test_a_wide_umask_does_not_widen_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_key_ring(tmp_path / "k")
    finally:
        os.umask(before)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o610, 0o644])
def test_a_file_that_others_may_use_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "k"
    open_key_ring(path)
    path.chmod(mode)
    with pytest.raises(AuthError) as caught:
        open_key_ring(path)
    assert caught.value.code is AuthCode.UNSAFE_FILE
    assert f"chmod 600 {path}" in caught.value.message


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k"
    create_private(path, b"data")
    owner = path.stat().st_uid
    real = os.fstat

    def foreign(descriptor: int) -> os.stat_result:
        fields = list(real(descriptor))
        fields[4] = owner + 4_000
        return os.stat_result(fields)

    monkeypatch.setattr("auth.private_files.files.os.fstat", foreign)
    with pytest.raises(AuthError) as caught:
        read_private(path)
    assert caught.value.code is AuthCode.UNSAFE_FILE
    assert "chown" in caught.value.message


def test_a_second_creator_reads_what_the_first_made(tmp_path: Path) -> None:
    path = tmp_path / "k"

    # The other process creates the file between our look and our creation.
    def racing(count: int) -> bytes:
        if not path.exists():
            create_private(path, b"00000001 " + b"A" * 43 + b"=\n")
        return os.urandom(count)

    envelope = open_key_ring(path, racing).seal(b"s", b"c")
    assert open_key_ring(path).unseal(envelope, b"c") == b"s"
    assert os.listdir(tmp_path) == ["k"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("auth.private_files.files.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        open_key_ring(tmp_path / "k")
    assert os.listdir(tmp_path) == []


def test_a_line_added_seals_from_then_on_and_the_old_ones_open(tmp_path: Path) -> None:
    path = tmp_path / "k"
    old = open_key_ring(path)
    envelope = old.seal(b"s", b"c")
    path.write_bytes(path.read_bytes() + KEY_LINE)
    ring = open_key_ring(path)
    assert ring.unseal(envelope, b"c") == b"s"
    with pytest.raises(AuthError) as caught:
        old.unseal(ring.seal(b"s", b"c"), b"c")
    assert "key 00000001" in caught.value.message


def test_the_number_of_keys_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "k"
    lines = [b"%08x " % number + KEY_LINE[9:] for number in range(KEYS_MAX + 1)]
    create_private(path, b"".join(lines[:-1]))
    open_key_ring(path)
    path.write_bytes(b"".join(lines))
    with pytest.raises(AuthError) as caught:
        open_key_ring(path)
    assert f"it holds {KEYS_MAX + 1} keys" in caught.value.message


KEY_LINE = b"00000001 " + b"A" * 43 + b"=\n"


def test_a_ring_says_which_key_it_lacks() -> None:
    """Another gateway's file: nothing that it sealed opens here."""
    ring = KeyRing({1: NEW})
    assert ring.lacks is None
    with pytest.raises(AuthError, match="aabbccdd"):
        ring.unseal(SEALED, b"context")
    assert ring.lacks == 0xAABBCCDD


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"# only a comment\n",
        b"nonsense\n",
        b"00000001 short=\n",
        b"0000001 " + b"A" * 43 + b"=\n",
        KEY_LINE + KEY_LINE,
        b"\xff\xfe\n",
        b"x" * (FILE_BYTES_MAX + 1),
    ],
)
def test_a_file_that_is_no_key_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "k"
    create_private(path, content)
    with pytest.raises(AuthError) as caught:
        open_key_ring(path)
    assert caught.value.code is AuthCode.DAMAGED
    assert path.read_bytes() == content


def test_a_directory_in_the_place_of_the_file_is_an_error_not_a_key(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        open_key_ring(tmp_path / "k")
