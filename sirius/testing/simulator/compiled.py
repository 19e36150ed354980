"""The simulator as machine code: `python -m sirius.testing.simulator.compiled FOLDER`.

A run calls some million small functions, and no single one of them matters. mypyc turns the same source into C, and a
seed takes two thirds of the time: an hour less for fifty thousand of them. Nothing else is run that way.

The package is copied to the folder, and whatever a run loads is compiled there, next to its source. Then some seeds
are run in both ways: their traces must be equal to the letter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[2]
_SEEDS: Final = 40
_AS_THEY_ARE: Final = frozenset(
    {
        # They go through their own `__slots__`, which a compiled class does not have.
        "paxos/config.py",
        "catchup/config.py",
        # Data classes with a `ClassVar`, which a compiled one takes for a field.
        "wal/frames.py",
        "wal/incoming.py",
        "wal/journal/file.py",
        # Errors of several types under one name, which a compiled function takes for one type.
        "taking.py",
        "wal/commit.py",
        "wal/recovery.py",
        "wal/repair/acceptor.py",
        "wal/verify/verify.py",
    }
)
_LIST_MODULES: Final = """
import sys
import sirius.testing.simulator.__main__
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "sirius":
        print(module.__file__)
"""


def main() -> int:
    """Make the folder anew, unless it holds this very source."""
    if len(sys.argv) != 2:
        print("usage: python -m sirius.testing.simulator.compiled FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).resolve()
    if not _is_made(folder):
        print(f"compiling the simulator into {folder}: some four minutes", file=sys.stderr)
        _make(folder)
    return 0


def _is_made(folder: Path) -> bool:
    made = folder / "made"
    return made.exists() and made.read_text(encoding="utf-8") == _source()


def _source() -> str:
    """Everything that is compiled, in one string."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(_PACKAGE.rglob("*.py")))


def _make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_PACKAGE, folder / "sirius", ignore=shutil.ignore_patterns("__pycache__"))
    interpreted = _traces(folder)
    _compile(folder)
    if _traces(folder) != interpreted:
        raise SystemExit("a compiled run is not what it is without: mypyc has changed its meaning")
    (folder / "made").write_text(_source(), encoding="utf-8")


def _traces(folder: Path) -> str:
    """Run some seeds with the package of a folder; return what the ledger says of each."""
    ledger = folder / "ledger"
    command = ["-m", "sirius.testing.simulator", "--count", str(_SEEDS), "--ledger", str(ledger)]
    _python(folder, *command)
    (lines,) = [path.read_text(encoding="utf-8") for path in ledger.glob("*.jsonl")]
    shutil.rmtree(ledger)
    return lines


def _compile(folder: Path) -> None:
    from mypyc.build import mypycify  # type: ignore[import-not-found, unused-ignore]
    from setuptools import setup  # type: ignore[import-untyped, unused-ignore]

    listed = _python(folder, "-c", _LIST_MODULES).split()
    modules = [os.path.relpath(path, folder / "sirius") for path in listed]
    files = [f"sirius/{path}" for path in modules if _can_be_compiled(path)]
    here = Path.cwd()
    os.chdir(folder)
    try:
        extensions = mypycify(["--ignore-missing-imports", *files], opt_level="2", multi_file=True)
        arguments = ["--quiet", "build_ext", "--inplace", "--parallel", "2"]
        setup(name="sirius", packages=[], ext_modules=extensions, script_args=arguments)
    finally:
        os.chdir(here)


def _can_be_compiled(module: str) -> bool:
    return not module.endswith(("__init__.py", "__main__.py")) and module not in _AS_THEY_ARE


def _python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
