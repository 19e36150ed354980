"""What operators see of a node: its status and its metrics."""
