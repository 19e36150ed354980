"""Stand-ins for the outside world, for the tests of whoever builds on Sirius."""

from sirius.testing.filesystem import MemoryFileSystem, SimulatedCrash

__all__ = ["MemoryFileSystem", "SimulatedCrash"]
