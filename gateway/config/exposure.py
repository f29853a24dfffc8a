"""What other machines could read, or do without signing in: refused unless it is said to be meant,
and said again at every start.

Loopback is nobody else's, so that nothing here applies to it. A listener behind a proxy that ends
TLS is on loopback, or its operator says that the way from there is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from auth.loopback import is_loopback
from auth.principal import SignInMode
from gateway.config.path import spell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.path import Path
    from gateway.config.schema import Listener, Settings

CLUSTER_LISTENERS: Final = (("node", "store"), ("node", "mesh"))
"""What `node.cluster.tls` is for."""

PLAIN_TEXT: Final = "node.insecure.plain_text"
NO_SIGN_IN: Final = "node.insecure.no_sign_in"


class Exposure(NamedTuple):
    """One thing that is open."""

    path: Path
    """The setting that opens it."""
    what: str
    remedy: str
    meant: str
    """The setting that says that it is meant."""
    is_meant: bool


def exposures(settings: Settings) -> Iterator[Exposure]:
    """All that is open to other machines."""
    insecure = settings.node.insecure
    reachable = {
        path: listener
        for path, listener in settings.open_listeners().items()
        if not is_loopback(listener.host)
    }
    for path, listener in reachable.items():
        if path in CLUSTER_LISTENERS:
            is_plain = settings.node.cluster.tls.certificate is None
            remedy = "set node.cluster.tls"
        else:
            is_plain = not listener.tls or listener.plain_too
            remedy = "set plain_too: false" if listener.tls else "set tls: true"
        if is_plain:
            where = f"{_shown(listener)} is reached by other machines without TLS"
            yield Exposure((*path, "host"), where, remedy, PLAIN_TEXT, insecure.plain_text)
    for name, protocol in settings.protocols.items():
        mode = protocol.options.get("sign_in", SignInMode.VERIFY.value)
        at = ("protocols", name)
        if mode == SignInMode.VERIFY.value or not any(path[:2] == at for path in reachable):
            continue
        what = f"lets other machines in without checking who they are (sign_in: {mode})"
        remedy = f"set sign_in: {SignInMode.VERIFY.value}"
        yield Exposure((*at, "options", "sign_in"), what, remedy, NO_SIGN_IN, insecure.no_sign_in)


def exposure_findings(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Those that nobody has said are meant: `config_check.find_problems`."""
    for each in exposures(settings):
        if not each.is_meant:
            yield (
                each.path,
                f"{each.what}: {each.remedy}, or say that it is meant: {each.meant}=true",
            )


def warn_of_exposures(settings: Settings) -> list[str]:
    """Say in the log what is open; the same as lines for people."""
    import structlog  # half of the modules that commands about settings would load

    log = structlog.get_logger("weir.start")
    lines = []
    for each in exposures(settings):
        log.warning("not secured", setting=spell(each.path), what=each.what, meant_by=each.meant)
        lines.append(f"NOT SECURED: {spell(each.path)} {each.what}")
    return lines


def _shown(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"
