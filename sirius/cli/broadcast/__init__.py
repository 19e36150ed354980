"""The commands below `sirius broadcast`."""
