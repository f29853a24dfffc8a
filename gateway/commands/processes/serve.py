"""`weir serve`: run this process's roles until it is told to stop."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import typer

import gateway
from gateway.commands.common.options import SettingsOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode

PACKAGES = ("kernel", "adapters", "auth", "metering")
"""Our packages that share their name with packages on PyPI; a foreign one would win silently."""


@with_groups
def serve(*, settings: SettingsOptions) -> None:
    """Serve all enabled protocols until SIGTERM or Ctrl-C."""
    loaded = settings.load()
    check_packages()
    from gateway.app import run

    raise typer.Exit(run(loaded.settings, loaded))


def check_packages() -> None:
    """Make sure that the packages beside `gateway` are ours.

    PyPI has packages named kernel, auth and adapters, and in an editable install a foreign one is
    found first. CommandError naming it, rather than an ImportError from its inside.
    """
    home = Path(gateway.__file__).parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin) if spec is not None and spec.origin else None
        if origin is None or origin.parent.parent != home:
            message = f"the package {name!r} found is {origin}, which is not Weir's"
            hint = f"uninstall the package that brought it, or install Weir alone ({home})"
            raise CommandError(message, ExitCode.FAILED, hint)
