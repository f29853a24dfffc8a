"""What the tidy tests look at: the files of the project, tracked or about to be."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("kernel", "adapters", "gateway", "auth", "metering", "spark", "benchmarks")


@cache
def project_files() -> tuple[Path, ...]:
    """Return every file git tracks or would add, relative to the top, in order."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    files = (Path(name) for name in sorted(set(listing.split("\0"))) if name)
    return tuple(file for file in files if (ROOT / file).is_file())


@cache
def text_of(file: Path) -> str | None:
    """Return the text of a project file, or None if it holds none."""
    try:
        return (ROOT / file).read_text()
    except UnicodeDecodeError:
        return None


def python_files() -> list[Path]:
    """Return the project's Python modules."""
    return [file for file in project_files() if file.suffix == ".py"]
