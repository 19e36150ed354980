"""Names of nodes: one spelling for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.config import address


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("films1.example:7400", "films1.example:7400"),
        ("Films1.EXAMPLE.:07400", "films1.example:7400"),
        ("  localhost:1 ", "localhost:1"),
        ("node_1:65535", "node_1:65535"),
        ("10.0.0.1:7400", "10.0.0.1:7400"),
        ("[::1]:7400", "[::1]:7400"),
        ("[2001:DB8:0:0::1]:7400", "[2001:db8::1]:7400"),
        ("9films:7400", "9films:7400"),
    ],
)
def test_one_node_has_one_spelling(text: str, name: str) -> None:
    assert address.normal(text) == name


FORM = '"host:port", such as "films1.example:7400", "10.0.0.1:7400" or "[::1]:7400"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", FORM),
        ("films1", FORM),
        (":7400", FORM),
        ("films1:", FORM),
        ("films1:seven", FORM),
        ("films1:-1", FORM),
        ("films1:\u0667", FORM),
        ("::1:7400", FORM),
        ("http://films1:7400", FORM),
        ("[films1:7400", FORM),
        ("films1:0", "a port from 1 to 65535"),
        ("films1:65536", "a port from 1 to 65535"),
        ("[films1]:7400", "an IPv6 address between the brackets"),
        ("10.0.0.256:7400", "an IPv4 address of four numbers up to 255"),
        ("10.0.1:7400", "an IPv4 address of four numbers up to 255"),
        ("films 1:7400", f"a host name before the port: {FORM}"),
        ("-films:7400", f"a host name before the port: {FORM}"),
        ("films..example:7400", f"a host name before the port: {FORM}"),
        ("films/1:7400", f"a host name before the port: {FORM}"),
        ("fílms:7400", f"a host name before the port: {FORM}"),
        ("f" * 64 + ":7400", f"a host name before the port: {FORM}"),
        ("f." * 127 + "f:7400", f"a host name before the port: {FORM}"),
    ],
)
def test_what_is_no_address_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        address.normal(text)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        ("localhost:1", True),
        ("a.localhost:1", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("notlocalhost:1", False),
        ("films1.example:1", False),
    ],
)
def test_loopback_is_what_never_leaves_the_machine(name: str, loopback: bool) -> None:
    assert address.is_loopback(name) is loopback


@pytest.mark.parametrize(
    ("name", "wildcard"),
    [("0.0.0.0:1", True), ("[::]:1", True), ("10.0.0.0:1", False), ("a:1", False)],
)
def test_a_wildcard_can_only_be_listened_on(name: str, wildcard: bool) -> None:
    assert address.is_wildcard(name) is wildcard


@given(st.ip_addresses(), st.integers(1, 65535))
def test_a_normal_address_stays_what_it_is(ip: object, port: int) -> None:
    text = f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}"
    assert address.normal(text) == text
    assert address.normal(address.normal(text.upper())) == text


@given(st.text(alphabet="ab1.-_:[]/ ٣\x00é", max_size=12))
def test_any_text_is_an_address_or_is_refused(text: str) -> None:
    try:
        name = address.normal(text)
    except ValueError:
        return
    assert address.normal(name) == name
