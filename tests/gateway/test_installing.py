"""The wheel made of the sdist, in an environment of its own: Weir runs from there.

What it depends on is lent by the environment that runs the tests; that the requirements name all of
it is another test's (`tests/tidy/test_packaging.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import gateway
from gateway import docs_commands
from gateway.config.source import default_file
from tests.gateway.serving import environment, launched
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

INSTALL_SECONDS_MAX = 90
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
OFFLINE = ("--no-deps", "--no-index", "--no-build-isolation")


@dataclass(frozen=True, slots=True)
class Installed:
    home: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.home / "bin" / "weir"), *command],
            cwd=self.home,
            env=environment_without_the_tree(),
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS_MAX,
        )


def environment_without_the_tree() -> dict[str, str]:
    return {name: value for name, value in environment().items() if name != "PYTHONPATH"}


def run(*command: str, cwd: Path) -> None:
    ran = subprocess.run(
        command,
        cwd=cwd,
        env=environment_without_the_tree(),
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with nothing in it but what the sdist installs."""
    made = tmp_path_factory.mktemp("dist")
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--directory",
        str(made),
        cwd=ROOT,
    )
    (sdist,) = made.glob("weir_mq-*.tar.gz")
    run(*PIP, "wheel", *OFFLINE, "--wheel-dir", str(made), str(sdist), cwd=made)
    (wheel,) = made.glob("weir_mq-*.whl")
    home = made / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(home), cwd=made)
    python = home / "bin" / "python"
    run(*PIP, "--python", str(python), "install", "--no-compile", *OFFLINE, str(wheel), cwd=made)
    # A line of a .pth file is a directory to look in: what is said in its own .pth files, as where
    # the tree of an editable install is, is not read.
    (packages,) = home.glob("lib/python*/site-packages")
    lent = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "lent.pth").write_text("".join(f"{each}\n" for each in lent))
    return Installed(home)


def test_what_is_installed_runs_from_there(installed: Installed) -> None:
    assert installed.run("--version").stdout == f"weir {gateway.__version__}\n"
    code = "import gateway, kernel, spark; print(gateway.__file__, kernel.__file__, spark.__file__)"
    python = installed.home / "bin" / "python"
    found = subprocess.run(
        [python, "-c", code],
        env=environment_without_the_tree(),
        cwd=installed.home,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [each.startswith(str(installed.home)) for each in found] == [True] * 3


def test_the_settings_are_those_of_the_tree(installed: Installed) -> None:
    (settings,) = installed.home.glob("lib/python*/site-packages/gateway/protocols.yaml")
    assert settings.read_text() == default_file().read_text()


def test_man_page_and_completions_are_where_a_system_looks(installed: Installed) -> None:
    for place, text in docs_commands.render().items():
        assert (installed.home / "share" / place).read_text() == text


def test_it_serves(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    with launched(tmp_path / "data", program=(str(installed.home / "bin" / "weir"),)) as node:
        node.serves()
        assert node.http("GET", "/readyz", token=None).status == 200
        assert {"amqp", "mqtt", "rocketmq", "sqs"} == node.protocols
        assert node.terminate() == 0


def test_a_shell_completes_commands_and_options(installed: Installed) -> None:
    script = installed.home / "share" / docs_commands.COMPLETIONS["bash"]
    asked = (
        f"source {script}; COMP_WORDS=(weir topic pu); COMP_CWORD=2;"
        ' _weir_completion weir; echo "${COMPREPLY[@]}"'
    )
    path = f"{installed.home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", asked],
        env=environment_without_the_tree() | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=INSTALL_SECONDS_MAX,
    )
    assert ran.stdout == "purge\n"
