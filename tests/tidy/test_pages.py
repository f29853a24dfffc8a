"""Generated pages are what their generator would write now; the others name what is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gateway import docs_api, docs_commands
from gateway.config.source import default_file
from gateway.docs_config import PAGE, render
from tests.tidy.source_tree import PACKAGES, ROOT, project_files, text_of


def test_the_settings_page_is_current() -> None:
    written = (ROOT / PAGE).read_text()
    assert written == render(default_file().read_text()), "run `make docs`"


def test_the_man_page_and_the_completions_are_current() -> None:
    for place, text in docs_commands.render().items():
        assert (ROOT / docs_commands.SHARE / place).read_text() == text, "run `make docs`"


def test_the_page_of_the_api_is_current() -> None:
    assert (ROOT / docs_api.PAGE).read_text() == docs_api.render(), "run `make docs`"


def test_a_setting_without_a_comment_cannot_be_rendered() -> None:
    with pytest.raises(ValueError, match=r"protocols.yaml:3: node.data has no comment above it"):
        render("# About.\nnode:\n  data: x\n")


def test_the_map_names_every_package() -> None:
    words = set(re.findall(r"`([\w/]+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    packages = {file.parent for file in project_files() if file.name == "__init__.py"}
    ours = {each.as_posix() for each in packages if each.parts[0] in PACKAGES}
    # A package of a row's package is named without its path there; what is inside an adapter, or
    # the gateway, the docstring there names (`test_map`).
    ours = {
        each
        for each in ours
        if not each.startswith("gateway/") and (each.count("/") == 1 or each[:9] != "adapters/")
    }
    missing = {each for each in ours if not {each, each.rpartition("/")[2]} & words}
    assert missing == set()


@pytest.mark.parametrize(
    "page", [file.as_posix() for file in project_files() if file.suffix == ".md"]
)
def test_a_module_that_a_page_names_is_there(page: str) -> None:
    there = {f"/{file.as_posix()}" for file in project_files()}
    named = re.findall(r"`([\w./]+\.py)`", (ROOT / page).read_text())
    assert [name for name in named if not any(each.endswith(f"/{name}") for each in there)] == []


MADE = re.compile(r"(?:--data|--config|--price-book|-out|-keyout|(?<= )>) ([a-z][\w.-]*)\b(?!/)")
"""A file or directory of the reader's own, named by an option or a redirection."""


def test_git_ignores_what_the_pages_have_their_readers_make() -> None:
    pages = ["README.md", *(f.as_posix() for f in project_files() if f.match("docs/*.md"))]
    made = set()
    for page in pages:
        for block in re.findall(
            r"^```.*?^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
        ):
            made |= set(MADE.findall(block))
    assert {"my.yaml", "alice.json", "d1", "authority.key"} <= made, "the search finds them"
    spelled = [spelled for name in sorted(made) for spelled in (name, f"{name}/")]
    ran = subprocess.run(
        ["git", "check-ignore", "--no-index", *spelled],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(made - {each.rstrip("/") for each in ran.stdout.split()}) == []


CITED = re.compile(r"\bdocs/([\w/-]+\.md)(?:#([\w-]+))?")


def anchors(page: str) -> set[str]:
    """The headings of a page, as links spell them."""
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_a_page_that_is_cited_has_the_heading() -> None:
    cited = {
        found
        for file in project_files()
        if file.suffix in {".py", ".md", ".yaml", ".toml"}
        for found in CITED.findall(text_of(file) or "")
    }
    assert ("design/model.md", "the-topic-tree") in cited, "the search finds them"
    assert {page for page, _ in cited if not (ROOT / "docs" / page).is_file()} == set()
    headings = {page: anchors(text_of(Path("docs", page)) or "") for page, _ in cited}
    missing = {(page, title) for page, title in cited if title and title not in headings[page]}
    assert missing == set()


def test_nothing_is_cited_that_is_not_here() -> None:
    notes = re.compile(r"\bDESIGN" + r"\.md|\braft-store\b|(?<![/\w-])\w+\.md \d")
    citing = [f.as_posix() for f in project_files() if notes.search(text_of(f) or "")]
    assert citing == []


def test_the_glossary_has_each_term_once_in_order() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", text_of(Path("docs/glossary.md")) or "", re.MULTILINE)
    terms = [row.lower() for row in rows if row not in {"term", "---"}]
    assert len(terms) > 100
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(
    "page", [each.as_posix() for each in project_files() if each.match("docs/design/*.md")]
)
def test_a_design_page_is_read_in_one_sitting(page: str) -> None:
    assert (text_of(Path(page)) or "").count("\n") <= 300


def test_each_change_stands_once_below_its_kind_and_its_protocol() -> None:
    lines = (text_of(Path("CHANGELOG.md")) or "").splitlines()
    kind, subject, entries = "", "", []
    for line in lines:
        if line.startswith("## "):
            kind, subject = "", ""
        elif line.startswith("### "):
            kind, subject = line.removeprefix("### "), ""
        elif line.startswith("#### "):
            subject = line
        elif line.startswith("- "):
            entries.append(line)
            assert kind in {"Added", "Changed", "Fixed"}, line
            assert subject, line
    assert len(entries) > 80, "the search finds them"
    assert [each for each in entries if entries.count(each) > 1] == []
