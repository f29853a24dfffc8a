"""`weir config`: what the settings are, who set them, and whether they can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.common.options import FormatOption, SettingsOptions, with_groups
from gateway.commands.common.output import Format, Table, put, say
from gateway.config.merge import is_fact
from gateway.config.path import Path, spell

if TYPE_CHECKING:
    from collections.abc import Mapping


app = typer.Typer(help="Show and check the settings.", no_args_is_help=True)


@app.command()
@with_groups
def show(
    *,
    settings: SettingsOptions,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say where each value came from.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show every setting that can be changed, with the value `weir serve` would use."""
    loaded = settings.load()
    shown = {path: v for path, v in loaded.values.items() if not is_fact(path)}
    rows = [(spell(path), _text(value), loaded.origins[path]) for path, value in shown.items()]
    if origin:
        data_with_origins = {
            spell(path): {"value": value, "origin": loaded.origins[path]}
            for path, value in shown.items()
        }
        put(data_with_origins, Table(("setting", "value", "origin"), rows), output)
    else:
        put(_tree(shown), Table(("setting", "value"), [row[:2] for row in rows]), output)


@app.command()
@with_groups
def check(*, settings: SettingsOptions, output: FormatOption = Format.TABLE) -> None:
    """Check the settings without serving: exit code 0 if they can be used, 2 if not."""
    loaded = settings.load()
    changed = sum(origin != "default" for origin in loaded.origins.values())
    served = [name for name, protocol in loaded.settings.protocols.items() if protocol.enabled]
    say(f"ok: {changed} settings changed; serving {', '.join(served) or 'no protocol'}")
    rows = [(name,) for name in served]
    put({"changed": changed, "serves": served}, Table(("serves",), rows), output)


def _tree(values: Mapping[Path, object]) -> dict[str, object]:
    """Return the settings in the form of protocols.yaml, as an overlay could hold them."""
    root: dict[str, Any] = {}
    for path, value in values.items():
        node = root
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return root


def _text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return ", ".join(map(str, value)) or "[]"
        case "":
            return '""'
    return str(value)
