"""Completions in real shells: loaded as each shell loads them, at the first press of TAB."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.docs_commands import COMPLETIONS, SHARE
from tests.gateway.serving import environment
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

SHELL_SECONDS_MAX = 60

TYPED = "weir to\tpu\t--out\tj\t\r"
"""A command, one below it, an option, and its value, each completed by TAB."""

MEANT = "asked: topic purge --output json"

SETTINGS = {
    "bash": """
source {script}
weir() {{ echo "asked: $*"; }}
PS1='rea''dy> '
""",
    # Where zsh looks for completions of commands, as a system's are found.
    "zsh": """
fpath=({folder} $fpath)
autoload -Uz compinit && compinit -u -d {home}/compdump
weir() {{ print -r -- "asked: $*" }}
PS1='rea''dy> '
""",
}
"""`weir` is a function that says what the line was; completions ask the program of that name."""


def shell(name: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    return name


def variables(home: Path) -> dict[str, str]:
    program = shutil.which("weir", path=str(Path(sys.executable).parent))
    assert program is not None
    path = f"{Path(program).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(PATH=path, HOME=str(home), ZDOTDIR=str(home), TERM="xterm", COLUMNS="120")


def said_at_a_terminal(command: list[str], variables: dict[str, str], typed: str) -> str:
    """What an interactive shell writes until it has run the line that is typed at its prompt."""
    above, below = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=below,
        stdout=below,
        stderr=below,
        env=variables,
        cwd=variables["HOME"],
        start_new_session=True,
    )
    os.close(below)
    said = ""

    def until(is_there: Callable[[str], bool]) -> None:
        nonlocal said
        end = time.monotonic() + SHELL_SECONDS_MAX
        while not is_there(said):
            left = end - time.monotonic()
            assert left > 0, said
            if select.select([above], [], [], left)[0]:
                said += os.read(above, 65_536).decode(errors="replace")

    try:
        until(lambda text: "ready> " in text)
        for part in typed.splitlines(keepends=True):
            os.write(above, part.encode())
        until(lambda text: "asked: " in text and "ready> " in text.rpartition("asked: ")[2])
    finally:
        process.kill()
        process.wait()
        os.close(above)
    return said


@pytest.mark.parametrize("name", SETTINGS)
def test_a_shell_completes_commands_options_and_values(name: str, tmp_path: Path) -> None:
    script = ROOT / SHARE / COMPLETIONS[name]
    text = SETTINGS[name].format(script=script, folder=script.parent, home=tmp_path)
    (tmp_path / ".zshrc").write_text(text)
    options = ["--rcfile", str(tmp_path / ".zshrc")] if name == "bash" else ["-o", "NO_GLOBAL_RCS"]
    said = said_at_a_terminal([shell(name), *options, "-i"], variables(tmp_path), TYPED)
    assert MEANT in said
    assert "Traceback" not in said
    assert "error" not in said


def test_zsh_takes_the_file_from_who_sources_it_as_well(tmp_path: Path) -> None:
    script = ROOT / SHARE / COMPLETIONS["zsh"]
    lines = f"autoload -Uz compinit && compinit -u -D; source {script}; print $_comps[weir]"
    ran = subprocess.run(
        [shell("zsh"), "-f", "-c", lines],
        capture_output=True,
        text=True,
        check=True,
        env=variables(tmp_path),
        timeout=SHELL_SECONDS_MAX,
    )
    assert (ran.stdout, ran.stderr) == ("_weir_completion\n", "")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("weir to", {"topic"}),
        ("weir topic pu", {"purge"}),
        ("weir topic purge --out", {"--output"}),
        ("weir topic purge --output ", {"summary", "table", "json", "yaml", "name"}),
    ],
)
def test_fish_completes_commands_options_and_values(
    line: str, found: set[str], tmp_path: Path
) -> None:
    ran = subprocess.run(
        [shell("fish"), "-c", "complete -C $argv[1]", line],
        capture_output=True,
        text=True,
        check=True,
        env=variables(tmp_path) | {"XDG_DATA_DIRS": str(ROOT / SHARE)},
        timeout=SHELL_SECONDS_MAX,
    )
    assert {each.partition("\t")[0] for each in ran.stdout.splitlines()} == found
    assert ran.stderr == ""
