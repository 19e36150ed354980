"""Names of nodes: "host:port", spelt one way.

A node is known by its name, so two spellings of one address would be two nodes. The ancestor's users know that well:
names had to match to the letter. Here the host's case, a dot at its end, the many forms of an IPv6 address and zeros
in front of a port make no difference. What nobody can know without asking the network, such as that "localhost" is
"127.0.0.1", does.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

EXPECTED: Final = '"host:port", such as "films1.example:7400", "10.0.0.1:7400" or "[::1]:7400"'

REACHABLE: Final = "an address that others can reach; this one can only be listened on"

_FORM: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+)):([0-9]{1,9})")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NAME_MAX: Final = 253
_PORT_MAX: Final = 65535


def normal(text: str) -> str:
    """Return an address in its one spelling. Raises ValueError, which says what was expected."""
    host, port = split(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str) -> tuple[str, int]:
    """Return host and port of an address, the host in its one spelling."""
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise ValueError(EXPECTED)
    port = int(found[3])
    if not 1 <= port <= _PORT_MAX:
        raise ValueError(f"a port from 1 to {_PORT_MAX}")
    return (_ipv6(found[1]) if found[1] else _host(found[2])), port


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise ValueError("an IPv6 address between the brackets") from None


def _host(text: str) -> str:
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    if labels[-1].isdecimal():
        return _ipv4(host)
    if len(host) > _NAME_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"a host name before the port: {EXPECTED}")
    return host


def _ipv4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError("an IPv4 address of four numbers up to 255") from None


class Names:
    """A list of nodes: each an address that others can reach, in its one spelling, and there once."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def add(self, text: str, place: str) -> str | None:
        """Take the name that stands at `place`, or return what was expected instead."""
        try:
            name = normal(text)
        except ValueError as error:
            return str(error)
        if is_wildcard(name):
            return REACHABLE
        if name in self._places:
            return f"each name once; it is {self._places[name]} already"
        self._places[name] = place
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)


def is_loopback(name: str) -> bool:
    """Say whether what is sent to an address never leaves the machine."""
    host, _ = split(name)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _ip(host)
    return address is not None and address.is_loopback


def is_wildcard(name: str) -> bool:
    """Say whether an address stands for all of a machine's: one can listen there, and not go there."""
    address = _ip(split(name)[0])
    return address is not None and address.is_unspecified


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
