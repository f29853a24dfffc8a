"""The wheel and the sdist, each in an environment that had nothing in it: Weir runs from there.

pip fetches by name what they require, in the versions of constraints.txt, as a stranger has it do.
Both share one environment: the sdist comes in the wheel's place.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import gateway
from gateway import docs_commands
from gateway.config.source import default_file
from tests.gateway.serving import environment, launched
from tests.tidy.source_tree import PACKAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

INSTALL_SECONDS_MAX = 110
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
OF_A_TREE = "benchmarks"
"""Of this package only what `weir bench` runs (`benchmarks.load`) is for who has no tree."""

pytestmark = pytest.mark.timeout(2 * INSTALL_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Installed:
    home: Path
    """The environment."""

    @property
    def weir(self) -> str:
        return str(self.home / "bin" / "weir")

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    @property
    def packages(self) -> Path:
        (found,) = self.home.glob("lib/python*/site-packages")
        return found

    def install(self, what: Path, *options: str) -> None:
        pip = (*PIP, "--python", self.python, "install", "--no-compile")
        ran = run(*pip, *options, str(what), cwd=self.home)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def without_the_tree() -> dict[str, str]:
    return {name: value for name, value in environment().items() if name != "PYTHONPATH"}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=without_the_tree(),
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_SECONDS_MAX,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a wheel and an sdist of this tree."""
    made = tmp_path_factory.mktemp("dist")
    ran = run(sys.executable, "-m", "hatchling", "build", "--directory", str(made), cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return made


@pytest.fixture(scope="module")
def with_wheel(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    # What builds the sdist, for one; whether what Weir requires is there is not asked, but tested.
    ask = ("install", "--dry-run", "--no-deps", "--ignore-installed", "--retries", "0")
    asked = run(*PIP, *ask, "--timeout", "10", "hatchling", cwd=built)
    if asked.returncode:
        pytest.skip(f"pip reaches no package index here: {asked.stderr.strip()[-200:]}")
    home = tmp_path_factory.mktemp("empty") / "environment"
    ran = run(sys.executable, "-m", "venv", "--without-pip", str(home), cwd=built)
    assert ran.returncode == 0, ran.stderr
    installed = Installed(home)
    assert list(installed.packages.iterdir()) == []
    (wheel,) = built.glob("weir_mq-*.whl")
    installed.install(wheel, "-c", str(ROOT / "constraints.txt"))
    return installed


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"], ids=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, built: Path, with_wheel: Installed) -> Installed:
    """An environment with Weir from one of the two, and what it requires."""
    if request.param == "*.tar.gz":
        (sdist,) = built.glob("weir_mq-*.tar.gz")
        pip = (*PIP, "--python", with_wheel.python)
        run(*pip, "uninstall", "--yes", "weir-mq", cwd=built)
        assert not (with_wheel.packages / "gateway").exists()
        with_wheel.install(sdist, "--no-deps")
    return with_wheel


def test_what_is_installed_runs_from_there(installed: Installed, tmp_path: Path) -> None:
    assert run(installed.weir, "--version", cwd=tmp_path).stdout == f"weir {gateway.__version__}\n"
    code = "import gateway, kernel, spark; print(gateway.__file__, kernel.__file__, spark.__file__)"
    found = run(installed.python, "-c", code, cwd=tmp_path).stdout.split()
    assert [each.startswith(str(installed.home)) for each in found] == [True] * 3


def test_the_settings_are_those_of_the_tree(installed: Installed) -> None:
    settings = installed.packages / "gateway" / "protocols.yaml"
    assert settings.read_text() == default_file().read_text()


def test_man_page_and_completions_are_where_a_system_looks(installed: Installed) -> None:
    for place, text in docs_commands.render().items():
        assert (installed.home / "share" / place).read_text() == text


def test_it_serves_a_message_from_who_sends_it_to_who_consumes_it(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    with launched(tmp_path / "data", program=(installed.weir,)) as node:
        node.serves()
        assert node.http("GET", "/readyz", token=None).status == 200
        assert {"amqp", "mqtt", "rocketmq", "sqs"} == node.protocols
        for command in (
            ("queue", "create", "orders"),
            ("message", "send", "orders", "an order"),
        ):
            ran = run(installed.weir, *command, "--data", str(node.data), cwd=tmp_path)
            assert ran.returncode == 0, ran.stderr
        take = ("message", "consume", "orders", "--ack", "--data", str(node.data))
        taken = run(installed.weir, *take, cwd=tmp_path)
        assert json.loads(taken.stdout)["body"] == "an order", taken.stderr
        assert node.terminate() == 0


def test_every_command_and_module_does_with_what_is_required(
    installed: Installed, tmp_path: Path
) -> None:
    # -I: without the folder of the program, or anything of the tree.
    program = str(ROOT / "tests" / "gateway" / "every_command.py")
    ran = run(installed.python, "-I", program, *PACKAGES, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["answered"] > 100
    missing = {
        module: name
        for module, name in found["wanted"].items()
        if not module.startswith(f"{OF_A_TREE}.") or module.startswith(f"{OF_A_TREE}.load")
    }
    # The extra `spark` says so of both, and `weir bill` says which to install.
    assert set(missing.values()) == {"pyspark", "pyarrow"}
    assert all(module.startswith(("spark.jobs", "metering.parquet")) for module in missing)
