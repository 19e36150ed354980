"""A seeded simulator that tries to break consensus."""

from sirius.testing.simulator.faults import Fault, Kind
from sirius.testing.simulator.settings import Settings, draw_settings
from sirius.testing.simulator.simulation import Result, run
from sirius.testing.simulator.swarm import draw_schedule

__all__ = ["Fault", "Kind", "Result", "Settings", "draw_schedule", "draw_settings", "run"]
