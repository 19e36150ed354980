"""A session with certificates: who is let in, who is not, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sirius.broadcast import LocalProxy, connect
from sirius.errors import NotPermitted, Unreachable, UsageError, WrongCertificate
from sirius.transport.security import Tls, TlsSettings
from tests.transport.certificates import ROLES, Authority

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def proxy(authority: Authority) -> Iterator[LocalProxy]:
    security = Tls(replace(authority.issue("member-1"), roles=ROLES))
    with LocalProxy(["films"], security=security) as proxy:
        yield proxy


def files(settings: TlsSettings) -> dict[str, Any]:
    return {
        "certificate": settings.certificate,
        "key": settings.key,
        "authority": settings.authority,
    }


def test_a_client_with_a_certificate_publishes_and_gets_events(
    proxy: LocalProxy, authority: Authority
) -> None:
    with (
        connect(
            proxy.address, **files(authority.issue("client-1")), timeout_s=PATIENCE_S
        ) as broadcast,
        broadcast.subscribe("films") as films,
    ):
        seq = broadcast.publish("films", "casablanca").result(PATIENCE_S)
        event = films.get(PATIENCE_S)
    assert event is not None
    assert (event.seq, event.key) == (seq, b"casablanca")


def test_a_certificate_without_a_role_is_not_let_in(
    proxy: LocalProxy, authority: Authority
) -> None:
    with pytest.raises(NotPermitted, match="no role"):
        connect(proxy.address, **files(authority.issue("stranger")), timeout_s=PATIENCE_S)


def test_a_certificate_of_another_authority_is_said_to_be_one(
    proxy: LocalProxy, tmp_path: Path
) -> None:
    with pytest.raises(WrongCertificate):
        connect(proxy.address, **files(Authority(tmp_path).issue("client-1")), timeout_s=PATIENCE_S)


def test_without_a_certificate_nobody_answers(proxy: LocalProxy) -> None:
    with pytest.raises(Unreachable):
        connect(proxy.address, timeout_s=0.5)


def test_files_belong_together(authority: Authority) -> None:
    with pytest.raises(UsageError, match="belong together"):
        connect("127.0.0.1:1", certificate=authority.issue("client-1").certificate)
