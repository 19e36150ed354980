"""What options are made of."""

from __future__ import annotations

import click

from sirius.config import address


def http_address(text: str) -> tuple[str, int]:
    """Host and port to listen on."""
    host, _, port = text.rpartition(":")
    # Port 0 is no address that others can use, but one can listen there.
    return (_split(f"{host}:1", text)[0], 0) if port == "0" else _split(text, text)


def names(text: str) -> tuple[str, ...]:
    """Names of nodes, with commas or blanks between them."""
    found = tuple(text.replace(",", " ").split())
    for name in found:
        _split(name, name)
    return found


def _split(text: str, given: str) -> tuple[str, int]:
    try:
        return address.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{given}: expected {error}") from None
