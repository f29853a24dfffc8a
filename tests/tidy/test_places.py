"""No file knows a machine or a registry, and the top of the tree is as the project's user set it.

A path that exists on one machine only, or the address of one package index, makes a file that
works here and nowhere else. (The patterns are put together from parts, so that they do not find
themselves.)
"""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from tests.tidy.source_tree import PACKAGES, ROOT, project_files, text_of

MACHINE_PATH = re.compile(r"(?<![\w.$})-])/(?:root|home|tmp|work|farm|Users)/\w")

REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
    )
]

TOP_LEVEL = {
    *PACKAGES,
    "tests",
    "protocols.yaml",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "Containerfile",
    ".dockerignore",
    "docs",
    "benchmarks",
    "examples",
    "deploy",
    ".ci",
    ".gitignore",
}


def configured_registry_hosts() -> list[str]:
    """Return the hosts pip is set up to use on this machine, which are the likeliest to slip in."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    hosts = (urlsplit(url).hostname for url in re.findall(r"https?://[^\s'\",]+", shown))
    return sorted({host for host in hosts if host})


def machine_paths(text: str) -> list[str]:
    return [match.group() for match in MACHINE_PATH.finditer(text)]


def test_no_file_holds_a_path_of_one_machine() -> None:
    found = {str(file): machine_paths(text_of(file) or "") for file in project_files()}
    assert {file: paths for file, paths in found.items() if paths} == {}


def test_no_file_holds_the_host_of_a_registry() -> None:
    hosts = [*REGISTRY_HOSTS, *configured_registry_hosts()]
    found = {
        str(file): [host for host in hosts if host in (text_of(file) or "")]
        for file in project_files()
    }
    assert {file: named for file, named in found.items() if named} == {}


def test_the_top_of_the_tree_holds_nothing_else() -> None:
    assert {file.parts[0] for file in project_files()} - TOP_LEVEL == set()


@pytest.mark.parametrize("folder", ["root", "home", "tmp", "work"])
def test_a_machine_path_is_found_where_it_begins(folder: str) -> None:
    path = "/" + folder + "/thing"
    assert machine_paths(f'open("{path}")') == [path[: len(folder) + 3]]
    assert machine_paths(f"see {path} there")
    assert machine_paths(f"a{path}, .{path} and $DIR{path} are relative") == []


def test_every_relative_link_of_a_page_leads_somewhere() -> None:
    missing = [
        f"{file}: {target}"
        for file in project_files()
        if file.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)", text_of(file) or "")
        if "://" not in target and not (ROOT / file.parent / target).exists()
    ]
    assert missing == []
