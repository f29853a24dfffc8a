"""The options that several commands take, each declared once, and groups of options.

A command takes a group as one parameter behind `*`, and `@with_groups` shows typer the options:

    @users.command("info")
    @with_groups
    def show_user(
        user: UserName, *, server: TenantOptions, output: FormatOption = Format.TABLE
    ) -> None: ...

`weir serve`, `weir config show` and `weir config check` take the same settings, so that what is
shown and checked is what would be served.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from gateway.commands.common.api import Api, connect
from gateway.commands.common.output import CommandError, ExitCode, Format

if TYPE_CHECKING:
    from adapters.base import Declaration
    from gateway.config.loading import Loaded
    from gateway.config.path import ConfigError

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Admin address.", envvar="WEIR_URL"),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Data directory of the server.", envvar="WEIR_NODE__DATA"
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option(
        "--tenant", metavar="NAME", help="Whose; that of the login.", envvar="WEIR_TENANT"
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="Form of the answer.", show_default=True)
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do it without asking.", show_default=False)
]
PrefixOption = Annotated[str, typer.Option("--prefix", help="Only names that begin so.")]

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file with the changed settings only."),
]
ServersFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The server's own, if it names adapters that are not Weir's.",
    ),
]
DataDirectory = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory: short for --set node.data=DIR."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one setting; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Which server is asked."""

    url: UrlOption = None
    data: DataOption = None

    def connect(self) -> Api:
        """Its admin API. Raises what `api.connect` raises."""
        return connect(self.url, self.data)


@dataclass(frozen=True, slots=True)
class TenantOptions:
    """Which server is asked, for what belongs to a tenant."""

    url: UrlOption = None
    data: DataOption = None
    tenant: TenantOption = None

    def connect(self) -> Api:
        """Its admin API. Raises what `api.connect` raises."""
        return connect(self.url, self.data, self.tenant)


@dataclass(frozen=True, slots=True)
class SettingsOptions:
    """By what a command is told its settings."""

    config: ConfigFile = None
    data: DataDirectory = None
    assignments: Assignments = None

    def load(self, *implied: str) -> Loaded:
        """Return the settings asked for; `implied`: assignments that the command itself stands
        for. CommandError (usage) listing every problem.
        """
        from gateway.config.loading import load
        from gateway.config.path import ConfigError

        changes = [f"node.data={self.data}"] if self.data is not None else []
        try:
            return load(self.config, [*changes, *implied, *(self.assignments or ())])
        except ConfigError as error:
            raise _unusable(error) from error


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: for typer, a parameter of such a class is its fields
    with their defaults.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        group = parameter.annotation
        if is_dataclass(group) and isinstance(group, type):
            options = _options(group)
            groups[parameter.name] = group, [each.name for each in options]
            parameters.extend(options)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: object) -> None:
        for name, (group, names) in groups.items():
            given[name] = group(**{each: given.pop(each) for each in names})
        command(**given)

    # typer reads this; functions do not declare it.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _options(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=hints[option.name],
        )
        for option in fields(group)
    ]


def load_adapters(config: Path | None) -> dict[str, Declaration]:
    """The adapters of a server that does not run. CommandError (usage) listing every problem."""
    from gateway.config.loading import adapters_of
    from gateway.config.path import ConfigError

    try:
        return adapters_of(config)
    except ConfigError as error:
        raise _unusable(error) from error


def _unusable(error: ConfigError) -> CommandError:
    lines = "\n".join(f"  {problem}" for problem in error.problems)
    message = f"the settings cannot be used:\n{lines}"
    hint = "`weir config show` lists every setting and its value"
    return CommandError(message, ExitCode.USAGE, hint)
