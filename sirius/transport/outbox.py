"""What waits for one peer."""

from __future__ import annotations

from collections import deque

from sirius.transport.limits import TransportLimits
from sirius.transport.wire import Packet


class Outbox:
    """Two queues, control and data, with bounds. Control goes first, so a heartbeat waits for one frame at most.

    What does not fit is not taken: the machines count on losses and send again, and what is old in a queue is of more
    use to the other end than what is new.
    """

    def __init__(self, limits: TransportLimits) -> None:
        self._limits = limits
        self._control: deque[Packet] = deque()
        self._data: deque[Packet] = deque()
        self._data_bytes = 0

    def __len__(self) -> int:
        return len(self._control) + len(self._data)

    def put(self, packet: Packet) -> bool:
        """Take a packet, or say that there is no room for it. O(1)."""
        limits, size = self._limits, packet.size
        queue = self._data if packet.is_data else self._control
        if len(queue) >= limits.queue_messages_max or size > limits.message_bytes_max:
            return False
        if packet.is_data:
            if queue and self._data_bytes + size > limits.queue_bytes_max:
                return False
            self._data_bytes += size
        queue.append(packet)
        return True

    def take(self) -> list[Packet]:
        """Return what makes up the next frame; nothing if nothing waits."""
        taken: list[Packet] = []
        room = self._limits.frame_bytes
        for queue in (self._control, self._data):
            while queue and (queue[0].size <= room or not taken):
                packet = queue.popleft()
                taken.append(packet)
                room -= packet.size
                self._data_bytes -= packet.size * packet.is_data
        return taken

    def clear(self) -> int:
        """Forget everything, and say how much that was."""
        count = len(self)
        self._control.clear()
        self._data.clear()
        self._data_bytes = 0
        return count
