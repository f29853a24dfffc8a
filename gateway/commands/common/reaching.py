"""Reaching the server of an address: whom to believe, what may be sent there, and what is said of
one that does not answer as Weir does.

    https    only whoever shows a certificate that is trusted for this host is sent anything
    http     on this machine; to another only where WEIR_NODE__INSECURE__PLAIN_TEXT is true, as its
             server has it: whoever listens on the way has the token, or the password, then

Nothing is asked by way of a proxy, and no redirect is followed: what is meant for one host is sent
to no other.
"""

from __future__ import annotations

import http.client
import os
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from auth.loopback import is_loopback
from gateway.admin.address import ADMIN_CERTIFICATE
from gateway.commands.common.output import CommandError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_URL: Final = "http://127.0.0.1:15673"

REACH_TIMEOUT_S: Final = 10
"""To be taken up by a server that is there, however busy."""

PLAIN_TEXT: Final = "WEIR_NODE__INSECURE__PLAIN_TEXT"
"""The variable of the setting by which servers are reached without TLS (`config.exposure`)."""

_SSL_EXPIRED: Final = 10
_SSL_NOT_YET: Final = 9
_SSL_OTHER_HOST: Final = 62
_SSL_OTHER_ADDRESS: Final = 64
_CERTIFICATE_HINTS: Final[Mapping[int, str]] = {
    _SSL_EXPIRED: "have the server show a new one; SIGHUP has it read its files again",
    _SSL_NOT_YET: "look at the clocks of both machines",
    _SSL_OTHER_HOST: "use a name that stands in it",
    _SSL_OTHER_ADDRESS: "use a name or an address that stands in it",
}
"""By OpenSSL's number of what is wrong (X509_V_ERR_*); otherwise it is an unknown authority."""

FAILURES: Final = (OSError, http.client.HTTPException, UnicodeError)
"""What asking a server may raise; `failure` has words for each. UnicodeError: a name of a host that
has too long a part.
"""


class NoAnswer(CommandError):
    """No server answered, or none that is Weir's."""


def checked_url(text: str) -> str:
    """The address of an admin API: scheme, host and port. Raises CommandError (usage)."""
    found = text.rstrip("/")
    try:
        parts = urlsplit(found)
        # Whatever else there could be (a password, a path) would be left out without a word.
        is_url = (
            found.startswith(("http://", "https://"))
            and found.partition("://")[2] == parts.netloc
            and "@" not in parts.netloc
            and bool(parts.hostname)
            and parts.port != 0
            and found.isprintable()
            and " " not in found
        )
    except ValueError:
        is_url = False
    if not is_url:
        message = f"{_without_password(found)} is not an address such as {DEFAULT_URL}"
        raise CommandError(message, ExitCode.USAGE)
    return found


def _without_password(url: str) -> str:
    before, sign, host = url.rpartition("@")
    return f"{before.partition('://')[0]}://...@{host}" if sign else url


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def trust(url: str, directory: Path) -> ssl.SSLContext | None:
    """Whom to believe that they are the server: on this machine exactly the certificate that its
    data directory names; elsewhere what this machine trusts (SSL_CERT_FILE adds an authority).
    None: an address without TLS, to which nothing secret goes if it is another machine's.

    Raises CommandError.
    """
    host = host_of(url)
    if not url.startswith("https:"):
        if not is_loopback(host) and os.environ.get(PLAIN_TEXT, "").lower() != "true":
            raise CommandError(
                f"{url} is another machine's: without TLS others could read what signs in there",
                ExitCode.USAGE,
                f"use https (node.admin.tls), or set {PLAIN_TEXT}=true if nobody listens between",
            )
        return None
    own = directory / ADMIN_CERTIFICATE
    if not is_loopback(host) or not own.exists():
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Its names are those by which clients elsewhere reach it.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(own)
    except OSError as error:
        raise CommandError(f"{own} cannot be read: {error}") from error
    return context


def reach(url: str, tls: ssl.SSLContext | None) -> None:
    """Raise NoAnswer if nobody listens there, CommandError if it is somebody else."""
    connection = connection_to(url, REACH_TIMEOUT_S, tls)
    try:
        connection.connect()
    except FAILURES as error:
        raise failure(url, error) from error
    finally:
        connection.close()


def connection_to(
    url: str, timeout_s: float, tls: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if tls is not None:
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls)
    return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)


def failure(url: str, error: Exception) -> CommandError:
    """What to say of one of FAILURES."""
    if isinstance(error, ssl.SSLCertVerificationError):
        unknown = (
            "name its authority in SSL_CERT_FILE, or on its own machine its directory with --data"
        )
        return CommandError(
            f"{url} shows a certificate that is not trusted here: {error.verify_message}",
            ExitCode.FAILED,
            _CERTIFICATE_HINTS.get(error.verify_code, unknown),
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, ssl.SSLError):
        hint = "one without TLS has an address that begins with http://"
        return NoAnswer(f"TLS with {url} has failed: {reason}", ExitCode.FAILED, hint)
    # A server with TLS, asked without, says so in bytes that are no HTTP, or hangs up.
    is_cut_off = isinstance(error, ConnectionResetError | http.client.RemoteDisconnected)
    if is_cut_off or isinstance(error, http.client.HTTPException):
        other = "https" if url.startswith("http:") else "http"
        said = "hangs up" if is_cut_off else "answers, but not as Weir's admin API does"
        hint = f"is it another program's port, or does its address begin with {other}://?"
        return NoAnswer(f"{url} {said}", ExitCode.FAILED, hint)
    return NoAnswer(
        f"no server answers at {url}: {reason}",
        ExitCode.FAILED,
        "start one with `weir serve`, or say where it is with --url or --data",
    )
