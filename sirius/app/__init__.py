"""The reference application: keys and values over HTTP, on every node, from memory. `sirius serve` runs it."""
