"""Asks every command for its help, and imports every module: in an environment with nothing but
Weir and what it requires (`test_installing`).

Says as JSON how many commands answered, and which modules want a package that is not there.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

import typer

from gateway.cli import COMMANDS, tree

if TYPE_CHECKING:
    from collections.abc import Iterator


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, (*path, name))


def main(packages: list[str]) -> None:
    top = typer.main.get_command(tree(COMMANDS))
    answered = 0
    for path in paths(top):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            top(args=[*path, "--help"], prog_name="weir", standalone_mode=False)
        assert f"Usage: {' '.join(('weir', *path))}" in text.getvalue(), path
        answered += 1
    wanted = {}
    for package in packages:
        for each in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            try:
                if not each.name.endswith(".__main__"):
                    importlib.import_module(each.name)
            except ModuleNotFoundError as error:
                wanted[each.name] = error.name
    sys.stdout.write(json.dumps({"answered": answered, "wanted": wanted}))


if __name__ == "__main__":
    main(sys.argv[1:])
