"""The commands of `sirius sim`, one a module."""
