"""Commands that talk to a node with certificates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sirius.testing.processes import free_ports
from tests.cli.processes import Serving
from tests.transport.certificates import Authority

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def node(folder: Path, authority: Authority) -> Iterator[Serving]:
    """A node that lets `ops` do everything, and `guest` read its status."""
    files = authority.issue("member-1")
    (folder / "sirius.toml").write_text(
        f'name = "127.0.0.1:{free_ports(1)[0]}"\ndata = "data"\ndurability = "os"\n'
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        f'authority = "{files.authority}"\n'
        '[tls.roles]\n"member-*" = ["member"]\nops = ["client", "admin"]\nguest = ["client"]\n'
    )
    with Serving("--config", str(folder / "sirius.toml")) as serving:
        serving.await_ready()
        yield serving


def files_of(authority: Authority, name: str) -> list[str]:
    files = authority.issue(name)
    options = {"certificate": files.certificate, "key": files.key, "authority": files.authority}
    return [word for option, path in options.items() for word in (f"--{option}", str(path))]


def test_who_has_a_certificate_is_answered(
    node: Serving, authority: Authority, sirius: Run
) -> None:
    name = node.announced["name"]
    for who, command in (("guest", "status"), ("ops", "status"), ("ops", "members")):
        result = sirius(command, "--json", *files_of(authority, who), name)
        assert (result.code, result.err) == (0, "")
        assert name in result.out


def test_who_may_not_is_told_so_in_a_line(node: Serving, authority: Authority, sirius: Run) -> None:
    result = sirius("members", *files_of(authority, "guest"), node.announced["name"])
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1


def test_who_has_no_certificate_is_not_answered(node: Serving, sirius: Run) -> None:
    result = sirius("status", "--json", node.announced["name"])
    assert result.code == 1
    assert json.loads(result.out)["error"].startswith(node.announced["name"])


def test_the_certificate_may_come_from_the_configuration(
    node: Serving, folder: Path, sirius: Run
) -> None:
    result = sirius("status", "--json", "--config", folder / "sirius.toml")
    assert (result.code, json.loads(result.out)["name"]) == (0, node.announced["name"])
