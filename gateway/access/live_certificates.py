"""Certificates that are read again while the process runs: at SIGHUP, and when their files differ.

A new pair is looked at before it is taken: key and certificate have to fit, and it must not have
expired. One that is not good is said once in the log, and the old one is shown on. What is taken
is shown from the next handshake on; connections that there are stay as they are.

Of a certificate's files alone: authorities (`client_authority`, `node.cluster.tls.authority`) are
read when the process starts, for to take away trust without sending anybody away would be none.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509

from auth.errors import AuthCode, AuthError
from auth.private_files.certificates import read_pem_pair

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import structlog.typing

    from auth.private_files.tls import CertificateFiles, PemPair
    from kernel.common.ports import Clock

LOOK_SECONDS: Final = 60.0
"""Certificates are renewed days before they expire."""

ALARM_BEFORE: Final = timedelta(days=7)
"""Whoever renews certificates by a program does it weeks before their end."""

TRIES: Final = 3
"""Files that change while they are read."""


class LiveCertificate:
    """One pair of files, and the TLS contexts that show what is in it."""

    def __init__(
        self,
        name: str,
        find: Callable[[], CertificateFiles],
        log: structlog.typing.FilteringBoundLogger,
        clock: Clock,
    ) -> None:
        """`name`: what the log calls it; `find()`: where the files are, made or renewed if this
        process makes them itself. Raises AuthError, of files that are no use.
        """
        self._name = name
        self._find = find
        self._log = log
        self._clock = clock
        self._contexts: list[ssl.SSLContext] = []
        self._refused = ""
        self.taken: list[Callable[[PemPair], None]] = []
        """Told of each pair that is taken."""
        self.files = find()
        self._read = _content(self.files)
        self.pair = read_pem_pair(self.files)
        """What is shown now."""
        self._ends = _end_of(self.pair)

    @property
    def alarm(self) -> str:
        """Why somebody should look: nobody takes an expired one. Empty: all is well."""
        if self._refused:
            return f"{self._name}: a new certificate was not taken: {self._refused}"
        if self._ends - self._now() < ALARM_BEFORE:
            return f"{self._name}: the certificate ends at {self._ends}"
        return ""

    def keep(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Have a context show what is taken later; returned, for whoever uses it."""
        self._contexts.append(context)
        return context

    def look(self) -> None:
        """Take what the files hold, if it is another pair than that shown, and good."""
        reason = "its files change while they are read"
        for _ in range(TRIES):
            try:
                files = self._find()
                found = _content(files)
                if found == self._read or self._take(files, found):
                    self._refused = ""
                    return
            except (AuthError, OSError) as error:
                reason = str(error)
                break
        if reason != self._refused:
            self._refused = reason
            self._log.error("certificate not taken", of=self._name, reason=reason)

    def _take(self, files: CertificateFiles, content: tuple[bytes, bytes]) -> bool:
        """Show a new pair; False if its files have changed meanwhile. Raises AuthError."""
        pair = read_pem_pair(files)
        ends = _end_of(pair)
        if ends <= self._now():
            raise AuthError(AuthCode.DAMAGED, f"{files.certificate} expired at {ends}")
        try:
            for context in self._contexts:
                context.load_cert_chain(files.certificate, files.private_key)
        except ssl.SSLError:
            # They fitted a moment ago. The contexts are loaded again, whole, by the next try.
            return False
        if _content(files) != content:
            return False
        self.files, self.pair, self._read, self._ends = files, pair, content, ends
        for told in self.taken:
            told(pair)
        self._log.info("certificate taken", of=self._name, valid_until=str(ends))
        return True

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)


class LiveCertificates:
    """Those of one process."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._by_name: dict[str, LiveCertificate] = {}
        self._timer: asyncio.TimerHandle | None = None

    def of(self, name: str, find: Callable[[], CertificateFiles]) -> LiveCertificate:
        """The one of a name, read when it is first asked for. Raises AuthError."""
        found = self._by_name.get(name)
        if found is None:
            found = LiveCertificate(name, find, self._log, self._clock)
            self._by_name[name] = found
        return found

    @property
    def alarms(self) -> str:
        """Why somebody should look at certificates. Empty: all is well."""
        return "; ".join(each.alarm for each in self._by_name.values() if each.alarm)

    def look(self) -> None:
        """Read again what has changed."""
        for each in self._by_name.values():
            each.look()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look each minute from now on."""

        def again() -> None:
            self.start(loop)
            self.look()

        self._timer = loop.call_later(LOOK_SECONDS, again)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _content(files: CertificateFiles) -> tuple[bytes, bytes]:
    return files.certificate.read_bytes(), files.private_key.read_bytes()


def _end_of(pair: PemPair) -> datetime:
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
