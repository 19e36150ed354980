"""A module a command. Each is imported when it is called."""
