from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from auth.errors import AuthCode, AuthError
from auth.private_files.certificates import (
    LIFETIME,
    RENEW_BEFORE,
    open_loopback_certificate,
    read_pem_pair,
)
from auth.private_files.tls import CertificateFiles, server_context

NOW = datetime.now(UTC)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A TLS handshake in memory; returns the client's side. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return one
    raise AssertionError("the handshake does not end")


def trusting(path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(path))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_the_published_certificate_connects(tmp_path: Path, name: str) -> None:
    files = open_loopback_certificate(tmp_path / "tls", NOW)
    client = shake_hands(server_context(files), trusting(tmp_path / "tls" / "loopback.crt"), name)
    assert client.version() == "TLSv1.3"


def test_another_name_or_an_unknowing_client_does_not_connect(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(files), trusting(tmp_path / "loopback.crt"), "example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(files), ssl.create_default_context(), "localhost")


def test_tls_older_than_1_2_is_refused(tmp_path: Path) -> None:
    context = server_context(open_loopback_certificate(tmp_path, NOW))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_protocol_is_agreed_on_where_asked(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    client = trusting(tmp_path / "loopback.crt")
    client.set_alpn_protocols(["amqp", "h2"])
    side = shake_hands(server_context(files, alpn=["h2"]), client, "localhost")
    assert side.selected_alpn_protocol() == "h2"


def test_key_and_certificate_are_private_and_kept_over_restarts(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    files = open_loopback_certificate(directory, NOW)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert files.private_key.stat().st_mode & 0o777 == 0o600
    assert (directory / "loopback.crt").stat().st_mode & 0o777 == 0o644
    assert b"PRIVATE" not in (directory / "loopback.crt").read_bytes()
    content = files.private_key.read_bytes()
    open_loopback_certificate(directory, NOW + LIFETIME - RENEW_BEFORE - timedelta(minutes=1))
    assert files.private_key.read_bytes() == content


def test_a_certificate_about_to_end_is_made_anew_and_published(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    before = files.private_key.read_bytes()
    open_loopback_certificate(tmp_path, NOW + LIFETIME - RENEW_BEFORE + timedelta(minutes=1))
    assert files.private_key.read_bytes() != before
    assert (tmp_path / "loopback.crt").read_bytes() in files.private_key.read_bytes()


def test_a_lost_public_copy_is_published_again(tmp_path: Path) -> None:
    open_loopback_certificate(tmp_path, NOW)
    (tmp_path / "loopback.crt").unlink()
    files = open_loopback_certificate(tmp_path, NOW)
    assert (tmp_path / "loopback.crt").read_bytes() in files.private_key.read_bytes()


def test_the_pair_as_bytes_is_the_pair_of_the_files(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    pair = read_pem_pair(files)
    assert pair.certificate == (tmp_path / "loopback.crt").read_bytes()
    assert pair.private_key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert "BEGIN" not in repr(pair)


def test_a_wide_key_file_is_refused(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    files.private_key.chmod(0o644)
    with pytest.raises(AuthError) as caught:
        open_loopback_certificate(tmp_path, NOW)
    assert caught.value.code is AuthCode.UNSAFE_FILE


def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = open_loopback_certificate(tmp_path / "a", NOW)
    other = open_loopback_certificate(tmp_path / "b", NOW)
    mixed = CertificateFiles(tmp_path / "a" / "loopback.crt", other.private_key)
    missing = CertificateFiles(one.certificate, tmp_path / "none.key")
    for files in (mixed, missing):
        for load in (server_context, read_pem_pair):
            with pytest.raises(AuthError) as caught:
                load(files)
            assert caught.value.code is AuthCode.DAMAGED
            assert str(files.private_key) in caught.value.message


def test_garbage_in_the_place_of_the_certificate_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "loopback.pem"
    path.write_bytes(b"garbage")
    path.chmod(0o600)
    with pytest.raises(AuthError) as caught:
        open_loopback_certificate(tmp_path, NOW)
    assert caught.value.code is AuthCode.DAMAGED
    assert path.read_bytes() == b"garbage"


def test_a_required_client_certificate_keeps_others_out(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    public = tmp_path / "loopback.crt"
    server = server_context(files, client_authority=public)
    client = trusting(public)
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # where the refusal is part of the handshake
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client, "localhost")
    with pytest.raises(AuthError) as caught:
        server_context(files, client_authority=tmp_path / "none.crt")
    assert caught.value.code is AuthCode.DAMAGED


def test_an_encrypted_key_is_refused(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path, NOW)
    key = serialization.load_pem_private_key(files.private_key.read_bytes(), password=None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    with pytest.raises(AuthError) as caught:
        server_context(CertificateFiles(files.certificate, encrypted))
    assert caught.value.code is AuthCode.DAMAGED
