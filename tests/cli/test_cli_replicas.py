"""`sirius broadcast proxy` with a file that says that it is a replica, or that a stream is the log of a cluster."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sirius import Sirius, SiriusConfig
from sirius.broadcast import connect
from sirius.broadcast.cache import NearCache, feed
from sirius.config import TlsSettings
from sirius.testing.processes import free_ports
from tests.cli.processes import until
from tests.cli.test_cli_broadcast import ProxyProcess
from tests.cli.test_cli_tls import files_of as options_of
from tests.node.nodes import SMALL, Dict
from tests.transport.certificates import Authority

Run = Callable[..., Any]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Sirius]:
    """A Sirius cluster: of one node, as far as its clients can tell."""
    name = f"127.0.0.1:{free_ports(1)[0]}"
    config = SiriusConfig(
        name=name, members=[name], data=tmp_path / "log", log=SMALL, durability="os"
    )
    with Sirius(Dict(), config) as made:
        assert made.wait_until_ready(30)
        yield made


def name_of(node: Sirius) -> str:
    return str(node.status().name)


def files_of(folder: Path, cluster: str, *, may_found: str = "true") -> dict[str, Path]:
    """A file for each of three replicas, by their addresses."""
    names = [f"127.0.0.1:{port}" for port in free_ports(3)]
    files = {name: folder / f"replica{at}.toml" for at, name in enumerate(names)}
    for name, file in files.items():
        file.write_text(
            f'name = "{name}"\n[streams]\nfilms = "cinema"\n[chains]\ncinema = {json.dumps(names)}\n'
            f'[replica]\nproxy = "cinema"\ncluster = ["{cluster}"]\nmay_found = {may_found}\n'
        )
    return files


class Statuses:
    """What `sirius broadcast status` says of replicas."""

    def __init__(self, sirius: Run, file: Path) -> None:
        self._sirius, self._file = sirius, file

    def all(self) -> list[dict[str, Any]]:
        lines = self._sirius(f"broadcast status --json --config {self._file}").out.splitlines()
        return [json.loads(line) for line in lines]

    def chain(self) -> list[str]:
        """The replicas, if all that are told of agree on them."""
        told = [each["replicas"] for each in self.all() if each.get("is_member")]
        return told[0] if told and all(each == told[0] for each in told) else []

    def is_fresh(self) -> bool:
        """Whether each that answers knows where the stream ended a moment ago."""
        told = [each["streams"]["films"] for each in self.all() if "streams" in each]
        return all(each["age_s"] is not None and each["age_s"] < 5 for each in told) and all(
            each["known"] == told[0]["known"] for each in told
        )

    def await_chain(self, count: int) -> list[str]:
        until(lambda: len(self.chain()) == count, f"a chain of {count}")
        return self.chain()


def test_a_chain_started_from_files_loses_its_head_and_nothing_else(
    tmp_path: Path, sirius: Run, node: Sirius
) -> None:
    files = files_of(tmp_path, name_of(node))
    some = next(iter(files.values()))
    statuses = Statuses(sirius, some)
    publish = "broadcast publish films {} --json --timeout 30 --config {}"
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(ProxyProcess("--config", str(file)))
            for name, file in files.items()
        }
        assert {each.announced["replica_of"] for each in processes.values()} == {"cinema"}
        head, middle, tail = statuses.await_chain(3)
        text = sirius(f"broadcast status --config {some}").out
        for place in (
            f"{head}: head, replica 1 of 3 of cinema, configuration ",
            f"{middle}: replica 2 of 3 of cinema, configuration ",
            f"{tail}: tail, replica 3 of 3 of cinema, configuration ",
        ):
            assert place in text
        until(statuses.is_fresh, "vouched for")
        first = sirius(publish.format("a b", files[head]))
        processes[head].popen.kill()
        second = sirius(publish.format("c", files[head]))
        assert statuses.await_chain(2) == [middle, tail]
        until(statuses.is_fresh, "vouched for without the head")
        told = sirius(
            f"broadcast tail films --from 1 --limit 3 --idle 60 --json --config {files[head]}"
        )
        counts = {each["streams"]["films"]["count"] for each in statuses.all() if "streams" in each}
        cache = NearCache(str, max_staleness_s=5)
        with connect([middle]) as session, feed(cache, session.invalidations("films")):
            until(lambda: cache.staleness() < 5, "a cache that the chain vouches for")
        assert processes[middle].end(signal.SIGTERM)[0] == 0
    assert [json.loads(each.out)["first"] for each in (first, second)] == [1, 3]
    found = [json.loads(line) for line in told.out.splitlines()]
    assert [(each["seq"], each["key"]) for each in found] == [(1, "a"), (2, "b"), (3, "c")]
    assert counts == {3}, "and no other"


def test_a_replica_that_may_not_found_a_chain_waits_for_one_that_may(
    tmp_path: Path, sirius: Run, node: Sirius
) -> None:
    files = list(files_of(tmp_path, name_of(node), may_found="false").values())
    founder = files[1].read_text().replace("may_found = false", "may_found = true")
    statuses = Statuses(sirius, files[0])
    with ProxyProcess("--config", str(files[0])) as waiting:
        # The founder begins later and is the head all the same: the other one had every chance.
        line = sirius(f"broadcast status {waiting.name}").out.splitlines()[-1]
        assert line == f"{waiting.name}: a replica of cinema, which knows of no configuration yet"
        files[1].write_text(founder)
        with ProxyProcess("--config", str(files[1])) as other:
            assert statuses.await_chain(2) == [other.name, waiting.name]


def test_a_stream_that_is_the_log_of_a_cluster_by_the_file_has_its_numbers_and_takes_no_others(
    tmp_path: Path, sirius: Run, node: Sirius
) -> None:
    """Also after kill -9, and although nothing of it was kept."""
    name, file = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "proxy.toml"
    file.write_text(
        f'name = "{name}"\nlog_bodies = true\n'
        f'[streams]\nfilms = "{name}"\n[logs]\nfilms = ["{name_of(node)}"]\n'
    )
    tail = f"broadcast tail films --from 1 --limit {{}} --idle 60 --json --config {file}"
    with ProxyProcess("--config", str(file)) as proxy:
        refused = sirius(f"broadcast publish films c --config {file}")
        written = [seq_of(node, key) for key in "ab"]
        assert tailed(sirius(tail.format(2))) == list(zip(written, "ab", "ab", strict=True))
        status = json.loads(sirius(f"broadcast status --json --config {file}").out)
        shown = sirius(f"broadcast status --config {file}").out
        proxy.popen.kill()
    with ProxyProcess("--config", str(file)):
        written.append(seq_of(node, "c"))
        assert tailed(sirius(tail.format(3))) == list(zip(written, "abc", "abc", strict=True))
    assert refused.code != 0
    assert "is the log of a cluster: write to the cluster" in refused.err
    assert status["streams"]["films"]["age_s"] is None
    assert f"the log of {name_of(node)}" in shown


def seq_of(node: Sirius, key: str) -> int:
    """Write a key, with itself as its body; return the number in the log."""
    return int(node.enqueue_put(key, key.encode()).result(30).seq or 0)


def tailed(result: Any) -> list[tuple[int, str, str]]:
    found = [json.loads(line) for line in result.out.splitlines()]
    return [(each["seq"], each["key"], each["payload"]) for each in found]


def test_no_region_vouches_for_a_stream_that_is_a_log(
    tmp_path: Path, sirius: Run, node: Sirius
) -> None:
    """Its owner does not know how far the log is, so nobody who asks it does."""
    names = [f"127.0.0.1:{port}" for port in free_ports(2)]
    log = f'[logs]\nfilms = ["{name_of(node)}"]\n'
    files = [tmp_path / "owner.toml", tmp_path / "other.toml"]
    for name, file, rest in zip(names, files, (log, ""), strict=True):
        file.write_text(
            f'name = "{name}"\nproxies = {json.dumps(names)}\n'
            f'[streams]\nfilms = "{names[0]}"\nprices = "{names[0]}"\n{rest}'
        )
    seq = seq_of(node, "a")

    def streams() -> Any:
        return json.loads(sirius(f"broadcast status --json {names[1]}").out)["streams"]

    with ProxyProcess("--config", str(files[0])), ProxyProcess("--config", str(files[1])):
        until(lambda: streams()["prices"]["age_s"] is not None, "heard from the owner")
        until(lambda: streams()["films"]["count"] == seq, "there")
        assert streams()["films"]["age_s"] is None


@pytest.mark.deep
def test_a_chain_with_certificates_asks_its_cluster_as_a_client(
    tmp_path: Path, sirius: Run
) -> None:
    authority = Authority(tmp_path)
    cluster, *names = (f"127.0.0.1:{port}" for port in free_ports(3))
    certificate, key, signer = paths_of(authority, "sirius-1")
    roles = {"sirius-*": ["member"], "films-*": ["client"]}
    tls = TlsSettings(certificate=certificate, key=key, authority=signer, roles=roles)
    config = SiriusConfig(
        name=cluster, members=[cluster], data=tmp_path / "log", durability="os", tls=tls
    )
    files = [tmp_path / f"replica{at}.toml" for at in range(2)]
    for at, (name, file) in enumerate(zip(names, files, strict=True)):
        certificate, key, signer = paths_of(authority, f"films-{at}")
        file.write_text(
            f'name = "{name}"\n[streams]\nfilms = "cinema"\n[chains]\ncinema = {json.dumps(names)}\n'
            f'[replica]\nproxy = "cinema"\ncluster = ["{cluster}"]\n'
            f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nauthority = "{signer}"\n'
            '[tls.roles]\n"films-*" = ["member"]\napp = ["client"]\n'
        )
    statuses = Statuses(sirius, files[0])
    with (
        Sirius(Dict(), config),
        ProxyProcess("--config", str(files[0])),
        ProxyProcess("--config", str(files[1])),
    ):
        statuses.await_chain(2)
        until(statuses.is_fresh, "vouched for")
        words = ["--json", "--timeout", "60", "--proxy", names[0], *options_of(authority, "app")]
        published = sirius("broadcast", "publish", "films", "a", "b", *words)
        found = sirius("broadcast", "tail", "films", "--from", "1", "--limit", "2", *words)
    assert (published.code, published.err) == (0, "")
    assert [(seq, key) for seq, key, _ in tailed(found)] == [(1, "a"), (2, "b")]


def paths_of(authority: Authority, name: str) -> tuple[Path, Path, Path]:
    files = authority.issue(name)
    return Path(files.certificate), Path(files.key), Path(files.authority)
