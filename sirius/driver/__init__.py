"""What drives the pure machines in a real process: one loop, one thread that applies, and what lies between them."""
