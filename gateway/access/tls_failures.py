"""TLS handshakes that come to nothing: counted, and in the log.

The event loop ends such a connection and tells nobody: no protocol has seen it yet. So the contexts
of our listeners make TLS objects that tell. They do not know the other end's address; the client
has an error of its own. Anybody can cause these, as often as they like: of each listener and reason
there is a line a minute, and of all together LINES_MAX; the next says how many were left out
(`unlogged`). RocketMQ's listeners are gRPC's, which says nothing here.
"""

from __future__ import annotations

import ssl
from collections import Counter
from typing import TYPE_CHECKING, Final

from adapters.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Mapping

    import structlog.typing

    from kernel.common.ports import Clock

LINES_MAX: Final = 30
"""A minute: every reason in use, on several listeners."""

_NO_TLS = "what came is not TLS: the client uses the plain protocol on this port"
_NO_TRUST = "the client does not trust this listener's certificate"
_WORDS: Final[Mapping[str, str]] = {
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "TLSV1_ALERT_UNKNOWN_CA": _NO_TRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "to the client this listener's certificate has expired",
    "UNSUPPORTED_PROTOCOL": "the client speaks no TLS 1.2 or later",
    "NO_SHARED_CIPHER": "the client and this listener have no cipher in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is of no authority known here",
}
"""By OpenSSL's name of the reason; others are told by that name."""


class TlsFailures:
    """Of one process."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, clock: Clock) -> None:
        self._log = log
        self._budget = LineBudget(clock, LINES_MAX)
        self.counts: Counter[str] = Counter()
        """By listener, all since the start."""

    def watch(self, context: ssl.SSLContext, listener: str) -> ssl.SSLContext:
        """Hear of the handshakes of a listener's context, which is returned."""
        failed = self._failed

        class Watched(ssl.SSLObject):
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise  # it goes on
                except ssl.SSLError as error:
                    failed(listener, error)
                    raise

        self.counts[listener] = 0
        context.sslobject_class = Watched
        return context

    def _failed(self, listener: str, error: ssl.SSLError) -> None:
        self.counts[listener] += 1
        name = getattr(error, "reason", None) or type(error).__name__
        if self._budget.allows((listener, name)):
            self._log.warning(
                "a TLS handshake failed",
                listener=listener,
                reason=_WORDS.get(name, name),
                openssl=name,
                unlogged=self._budget.unlogged(),
            )
