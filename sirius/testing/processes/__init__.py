"""Real clusters for tests and benchmarks: each node a process of its own, to be loaded, stopped, paused and killed.

>>> with ProcessCluster.temporary(3) as cluster:
...     cluster.start()
...     cluster.wait_until_ready()
...     cluster.leader().kill()
"""

from sirius.testing.processes.cluster import ProcessCluster
from sirius.testing.processes.ports import free_ports
from sirius.testing.processes.process import NodeProcess, ProcessDied

__all__ = ["NodeProcess", "ProcessCluster", "ProcessDied", "free_ports"]
