"""Stand-ins for the outside world, for the tests of whoever builds on Sirius."""

from sirius.testing._gate import CrashMode, Operation, SimulatedCrash
from sirius.testing.filesystem import MemoryFileSystem

__all__ = ["CrashMode", "MemoryFileSystem", "Operation", "SimulatedCrash"]
