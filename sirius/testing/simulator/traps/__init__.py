"""Seeded bugs: mistakes of known designs, put back one at a time to see that the simulator finds them.

The code that they change knows nothing of it: a trap replaces methods of the real classes for as long as it is sprung.
A trap that no seed finds is a defect of the simulator, not a virtue of the code.
"""

from typing import Final

from sirius.testing.simulator.traps import consensus, disk
from sirius.testing.simulator.traps.trap import Catch, Patch, Trap, hunt

TRAPS: Final = {
    trap.number: trap
    for trap in sorted(
        (*consensus.TRAPS, *disk.TRAPS),
        key=lambda trap: (int(trap.number.rstrip("b")), trap.number),
    )
}
"""All of them by number, in order."""

__all__ = ["TRAPS", "Catch", "Patch", "Trap", "hunt"]
