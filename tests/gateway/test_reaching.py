"""Commands and a server that is not what its address says: one line, an exit code, and the token of
nobody sent to anybody whom it is not for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from gateway.commands.common import api, reaching
from gateway.commands.common.output import ExitCode
from tests.certificates import Authority
from tests.gateway.conftest import Ran, ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.gateway.serving import Process

TOKEN = "a-token-that-is-for-nobody-else"


@pytest.fixture
def weir(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """The command line in this process, with a token and no other variable."""
    for name in list(os.environ):
        if name.startswith(("WEIR_", "SSL_CERT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    return partial(ran, capsys)


def said(ran: Ran) -> str:
    """What a command that failed said: one line of what is wrong, and one of what to do at most."""
    lines = ran.err.splitlines()
    assert ran.out == ""
    assert lines[0].startswith("weir: ")
    assert [line.partition(":")[0] for line in lines[1:]] in ([], ["hint"])
    return ran.err


@dataclass
class Stranger:
    """Answers every connection with the same bytes, and keeps what it heard."""

    port: int
    heard: list[bytes] = field(default_factory=list)


@contextlib.contextmanager
def stranger(answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Stranger]:
    listener = socket.create_server(("127.0.0.1", 0))
    found = Stranger(listener.getsockname()[1])

    def serve() -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            with taken, contextlib.suppress(OSError):
                taken.settimeout(10)
                connection = tls.wrap_socket(taken, server_side=True) if tls is not None else taken
                with connection:
                    data = connection.recv(65_536)
                    if data:
                        found.heard.append(data)
                        connection.sendall(answer)

    thread = threading.Thread(target=serve, name="stranger")
    thread.start()
    try:
        yield found
    finally:
        # Closing alone would not wake who waits in accept.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(20)


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "hangs up"),
        (b"SSH-2.0-OpenSSH_9.2\x1b[31m\r\n", "not as Weir's admin API does"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "https://"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500 + b"\r\n", "not as Weir's admin API does"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not as Weir's"),
        (answer(b"<html>"), "is not a Weir admin API"),
        (answer(b"\xff\xfe"), "is not a Weir admin API"),
        (answer(b"[" * 100_000), "is not a Weir admin API"),
        (answer(b"{}"), "the answer does not say 'topics'"),
        (answer(b'{"topics": [{}], "next": null}'), "the answer does not say"),
        (answer(b"oh", "500 Oh"), "status 500"),
        (answer(b"[" * 100_000, "404 Oh"), "status 404"),
    ],
)
def test_a_program_that_is_no_weir_is_told_apart(
    weir: Callable[..., Ran], sent: bytes, words: str
) -> None:
    with stranger(sent) as found:
        ran = weir("topic", "ls", "--url", f"http://127.0.0.1:{found.port}")
        assert ran.code == ExitCode.FAILED
        assert words in said(ran)
        assert "\x1b" not in ran.err
        health = weir("health", "--url", f"http://127.0.0.1:{found.port}")
        assert health.code in {ExitCode.UNHEALTHY, ExitCode.FAILED}
        said(health)


def test_one_that_never_answers_is_given_up(
    weir: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(reaching, "REACH_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for scheme in ("http", "https"):
            ran = weir("topic", "ls", "--url", f"{scheme}://127.0.0.1:{port}")
            assert ran.code == ExitCode.FAILED
            assert "timed out" in said(ran)


def test_a_redirect_takes_the_token_nowhere(weir: Callable[..., Ran]) -> None:
    with stranger(answer(b"{}")) as other:
        there = f"Location: http://127.0.0.1:{other.port}/api/v1/topics"
        for status in ("301 Moved", "302 Found", "307 There", "308 There"):
            with stranger(answer(b"", status, there)) as found:
                ran = weir("topic", "ls", "--url", f"http://127.0.0.1:{found.port}")
            assert ran.code == ExitCode.FAILED
            assert status[:3] in said(ran)
        assert other.heard == []


def test_a_proxy_of_the_environment_is_not_asked(
    weir: Callable[..., Ran], node: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_TOKEN", node.token)
    with stranger(answer(b"{}")) as proxy:
        for name in ("http_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert weir("topic", "ls", "--url", node.admin_url).code == 0
        assert proxy.heard == []


@pytest.mark.parametrize(
    ("ends_in", "name", "is_known", "words"),
    [
        (1, x509.DNSName("elsewhere.example"), True, "stands in it"),
        (-0.5, None, True, "certificate has expired"),
        (1, None, False, "SSL_CERT_FILE"),
    ],
    ids=["another host's", "expired", "of an unknown authority"],
)
def test_nothing_is_sent_to_who_shows_a_certificate_that_does_not_do(
    weir: Callable[..., Ran],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends_in: float,
    name: x509.GeneralName | None,
    is_known: bool,
    words: str,
) -> None:
    authority = Authority(tmp_path / "authority")
    named = {} if name is None else {"alternative": name}
    files = authority.issue(ends_in=timedelta(hours=ends_in), **named)
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*files)
    with stranger(answer(b"{}"), tls) as found:
        url = f"https://127.0.0.1:{found.port}"
        for command in (("topic", "ls"), ("health",), ("queue", "create", "q")):
            ran = weir(*command, "--url", url)
            assert ran.code == ExitCode.FAILED
            assert words in said(ran)
        # The same by a context, with a password.
        monkeypatch.delenv("WEIR_TOKEN")
        monkeypatch.setenv("WEIR_PASSWORD", TOKEN)
        weir("context", "set", "prod", "--url", url, "--login", "ann", "--keep-secret")
        monkeypatch.setenv("WEIR_CONTEXT", "prod")
        assert words in said(weir("topic", "ls"))
        assert found.heard == []


def test_tls_is_asked_of_who_has_none_and_the_other_way_round(
    weir: Callable[..., Ran], node: Process, tmp_path: Path
) -> None:
    plain = weir("topic", "ls", "--url", node.admin_url.replace("http:", "https:"))
    assert plain.code == ExitCode.FAILED
    assert "begins with http://" in said(plain)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*Authority(tmp_path / "authority").issue())
    with stranger(answer(b"{}"), tls) as found:
        ran = weir("topic", "ls", "--url", f"http://127.0.0.1:{found.port}")
        assert ran.code == ExitCode.FAILED
        assert "https://" in said(ran)


def test_nothing_secret_goes_to_another_machine_in_plain_text(
    weir: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def reached(*about: object) -> None:
        asked.append(about)
        raise reaching.NoAnswer("nobody there")

    monkeypatch.setattr(api, "reach", reached)
    weir("context", "set", "prod", "--url", "http://weir.example:15673", "--keep-secret")
    for named in (("--url", "http://weir.example:15673"), ()):
        if not named:
            monkeypatch.delenv("WEIR_TOKEN")
            monkeypatch.setenv("WEIR_CONTEXT", "prod")
        ran = weir("topic", "ls", *named)
        assert ran.code == ExitCode.USAGE
        assert reaching.PLAIN_TEXT in said(ran)
        assert asked == []
    monkeypatch.setenv(reaching.PLAIN_TEXT, "true")
    assert "nobody there" in weir("topic", "ls").err
    assert len(asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://a b:1",
        "http://[::1:1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:1/weir",
        "http://127.0.0.1:1?x=1",
        "http://127.0.0.1:1#x",
        "HTTP://127.0.0.1:1",
        "http:127.0.0.1:1",
        "ftp://127.0.0.1",
        "http://",
        "",
        "http://127.0.0.1:1\x1b[31m",
    ],
)
def test_an_address_is_scheme_host_and_port_alone(weir: Callable[..., Ran], url: str) -> None:
    if url:
        ran = weir("topic", "ls", "--url", url)
        assert ran.code == ExitCode.USAGE
        assert "is not an address such as" in said(ran)
    assert weir("context", "set", "prod", "--url", url).code == ExitCode.USAGE


def test_a_password_in_an_address_is_refused_and_not_repeated(weir: Callable[..., Ran]) -> None:
    ran = weir("topic", "ls", "--url", "http://ann:secret@127.0.0.1:1")
    assert ran.code == ExitCode.USAGE
    assert "secret" not in said(ran)


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 80}.example"])
def test_a_name_that_no_host_can_have_is_nobodys(weir: Callable[..., Ran], host: str) -> None:
    ran = weir("topic", "ls", "--url", f"https://{host}:1")
    assert ran.code == ExitCode.FAILED
    assert "no server answers" in said(ran)


def test_what_no_header_holds_is_no_token(
    weir: Callable[..., Ran], node: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in ("a\nb", "tökén", "a\x00b".replace("\x00", "\x01")):
        monkeypatch.setenv("WEIR_TOKEN", token)
        ran = weir("topic", "ls", "--url", node.admin_url)
        assert ran.code == ExitCode.USAGE
        assert token not in said(ran)
    monkeypatch.setenv("WEIR_TOKEN", node.token + "\n")
    assert weir("topic", "ls", "--url", node.admin_url).code == 0
    monkeypatch.setenv("WEIR_LOGIN", "ann")
    monkeypatch.setenv("WEIR_PASSWORD", os.fsdecode(b"\xff"))
    assert weir("topic", "ls", "--url", node.admin_url).code == ExitCode.FAILED


def test_a_token_that_others_can_read_is_not_used(
    weir: Callable[..., Ran], node: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEIR_TOKEN")
    file = tmp_path / "admin.token"
    file.write_text(node.token)
    file.chmod(0o644)
    ran = weir("topic", "ls", "--url", node.admin_url, "--data", str(tmp_path))
    assert ran.code == ExitCode.FAILED
    assert f"chmod 600 {file}" in said(ran)
    file.chmod(0o600)
    for content in (b"", b"\xff\xfe", b"x" * 100_000):
        file.write_bytes(content)
        ran = weir("topic", "ls", "--url", node.admin_url, "--data", str(tmp_path))
        assert ran.code != 0
        said(ran)


def test_who_may_not_read_the_token_hears_who_may(
    weir: Callable[..., Ran], node: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_directory: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "admin.token")

    monkeypatch.delenv("WEIR_TOKEN")
    monkeypatch.setattr(api, "read_admin_token", refused)
    ran = weir("topic", "ls", "--url", node.admin_url, "--data", str(node.data))
    assert ran.code == ExitCode.FAILED
    assert "run this as the user" in said(ran)
