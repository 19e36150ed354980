"""Disks that fail on demand, under a running node. Not a test itself.

Three ways, from the one that works everywhere to the one that is most real: a library in front of the C library
(`bad_disk.c`, built by whatever `cc` there is), `strace` that lets system calls fail, and a file system that is full.
"""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sirius.testing.processes import NodeProcess

SOURCE: Final = Path(__file__).with_name("bad_disk.c")
_CONTROL: Final = struct.Struct("5i")


def build(folder: Path, source: Path = SOURCE) -> Path:
    """Compile a library that is loaded in front of the C library; skip the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip(f"there is no C compiler for {source.name}")
    library = folder / f"{source.stem}.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class BadDisk:
    """The folder of one node, whose writes and syncs fail while they are told to."""

    def __init__(self, library: Path, node: NodeProcess) -> None:
        """Get hold of a node that was not started yet."""
        node.folder.mkdir(parents=True, exist_ok=True)
        path = node.folder / "bad_disk_control"
        path.write_bytes(bytes(_CONTROL.size))
        with open(path, "r+b") as file:
            self._control = mmap.mmap(file.fileno(), _CONTROL.size)
        node.environment = {
            "LD_PRELOAD": str(library),
            "BAD_DISK_CONTROL": str(path),
            "BAD_DISK_FOLDER": os.path.realpath(node.folder / "data"),
        }

    def fail(self, *, write: int = 0, sync: int = 0, allocate: int = 0, read: int = 0) -> None:
        """Let calls fail with an errno from now on; 0: they work."""
        self._control[:] = _CONTROL.pack(write, sync, allocate, read, self.failed)

    def mend(self) -> None:
        self.fail()

    @property
    def failed(self) -> int:
        """How many calls have failed."""
        return int(_CONTROL.unpack(self._control[:])[4])


@contextmanager
def traced(node: NodeProcess, fault: str) -> Iterator[None]:
    """Let system calls of a running node fail, e.g. by `fdatasync:error=EIO`; skip where that cannot be done."""
    tool = shutil.which("strace")
    if tool is None:
        pytest.skip("strace is not installed")
    calls = fault.split(":", maxsplit=1)[0]
    command = [tool, "-f", "-p", str(node.pid), "-o", os.devnull]
    command += ["-e", f"trace={calls}", "-e", f"inject={fault}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        if "attached" not in said:
            pytest.skip(f"strace may not attach to a process here: {said.strip()}")
        yield
    finally:
        # It lets go of the process then, which works from there on.
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=30)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """Mount a small disk; skip where that is not permitted."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    path.mkdir(parents=True, exist_ok=True)
    command = [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
