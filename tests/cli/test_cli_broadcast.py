"""`sirius broadcast`: proxies as processes, and commands that talk to them."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sirius.broadcast import connect
from sirius.broadcast.net.asking import status_of
from sirius.testing.processes import free_ports
from tests.cli.processes import Process, until
from tests.cli.test_cli_tls import files_of
from tests.transport.certificates import Authority

Run = Callable[..., Any]
PATIENCE_S = 60.0


class ProxyProcess(Process):
    """`sirius broadcast proxy`, listening."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("broadcast", "proxy", "--json", *arguments)
        line = self.line()
        if not line:
            with self:
                raise AssertionError(self.end())
        self.announced: dict[str, Any] = json.loads(line)
        self.name: str = self.announced["name"]


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ProxyProcess]]:
    """Two regions, by files; `films` belongs to the first, `prices` to the second."""
    folder = tmp_path_factory.mktemp("regions")
    names = [f"127.0.0.1:{port}" for port in free_ports(2)]
    for number, name in enumerate(names):
        (folder / f"{number}.toml").write_text(
            f'name = "{name}"\nproxies = {json.dumps(names)}\n'
            f'[streams]\nfilms = "{names[0]}"\nprices = "{names[1]}"\n'
            '[proxy]\nadvertise_s = "50ms"\n'
        )
    with (
        ProxyProcess("--config", str(folder / "0.toml")) as one,
        ProxyProcess("--config", str(folder / "1.toml")) as other,
    ):
        one.announced["config"] = other.announced["config"] = str(folder / "0.toml")
        yield [one, other]


def test_a_proxy_says_what_it_owns(proxies: list[ProxyProcess]) -> None:
    assert [proxy.announced["owns"] for proxy in proxies] == [["films"], ["prices"]]


def test_what_is_published_in_one_region_comes_out_in_the_other(
    proxies: list[ProxyProcess], sirius: Run
) -> None:
    here, there = (proxy.name for proxy in proxies)
    published = sirius(
        f"broadcast publish films a b c --topic /noir --payload x --proxy {here} --json"
    )
    assert (published.code, published.err) == (0, "")
    span = json.loads(published.out)
    assert span["last"] - span["first"] == 2
    tailed = sirius(f"broadcast tail films --from {span['first']} --limit 3 --proxy {there} --json")
    found = [json.loads(line) for line in tailed.out.splitlines()]
    assert [each["key"] for each in found] == ["a", "b", "c"]
    assert {(each["topic"], each["payload"], each["kind"]) for each in found} == {
        ("/noir", "x", "keyed")
    }
    text = sirius(f"broadcast tail films --from {span['first']} --limit 1 --proxy {there}")
    assert text.out.split()[-4:] == ["keyed", "/noir", "a", "x"]


def test_keys_come_from_standard_input(proxies: list[ProxyProcess]) -> None:
    with Process("broadcast", "publish", "prices", "--json", "--proxy", proxies[0].name) as process:
        assert process.popen.stdin is not None
        process.popen.stdin.write("".join(f"key/{number}\n" for number in range(25_000)))
        code, out, err = process.end()
    assert (code, err) == (0, "")
    spans = [json.loads(line) for line in out.splitlines()]
    counts = [each["last"] - each["first"] + 1 for each in spans]
    assert sum(counts) == 25_000
    assert max(counts) <= 10_000


def test_a_key_does_not_wait_for_those_that_follow_it(proxies: list[ProxyProcess]) -> None:
    with Process("broadcast", "publish", "films", "--json", "--proxy", proxies[0].name) as process:
        assert process.popen.stdin is not None
        for key in ("one\n", "two\r\n\n", "three\nfo", "ur"):
            process.popen.stdin.write(key)
            process.popen.stdin.flush()
            if key.endswith("\n"):
                assert json.loads(process.line())["stream"] == "films"
        code, out, _ = process.end()
    spans = [json.loads(line) for line in out.splitlines()]
    assert (code, sum(each["last"] - each["first"] + 1 for each in spans)) == (0, 2)


def test_gc_events_are_published_and_seen(proxies: list[ProxyProcess], sirius: Run) -> None:
    name = proxies[0].name
    done = sirius(
        "broadcast", "publish", "films", "--collect", "seq < 3", "--proxy", name, "--json"
    )
    seq = json.loads(done.out)["first"]
    tailed = sirius(f"broadcast tail films --from {seq} --limit 1 --json --proxy {name}")
    assert json.loads(tailed.out)["kind"] == "gc"
    assert json.loads(tailed.out)["payload"] == "seq < 3"


def test_a_status_shows_both_regions(proxies: list[ProxyProcess], sirius: Run) -> None:
    config = proxies[0].announced["config"]

    def has_heard() -> bool:
        lines = sirius(f"broadcast status --json --config {config}").out.splitlines()
        streams = [json.loads(line)["streams"] for line in lines]
        ages = [each["age_s"] for told in streams for each in told.values()]
        return None not in ages and all(
            told["films"]["count"] == streams[0]["films"]["count"] for told in streams
        )

    until(has_heard, "up to date")
    result = sirius(f"broadcast status --config {config}")
    assert result.code == 0
    assert len(result.out.splitlines()) == 5
    assert result.out.count("its owner") == 2


def test_a_proxy_that_is_away_is_told(proxies: list[ProxyProcess], sirius: Run) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    result = sirius(f"broadcast status {proxies[0].name} {nobody}")
    assert result.code == 1
    assert nobody in result.out


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("publish filmz k", 2, "there is no stream 'filmz': there are films, prices"),
        ("tail filmz", 2, "there is no stream 'filmz': there are films, prices"),
        ("publish films --collect 'seq > 3'", 2, "seq can only be < or <="),
        ("publish films k --topic noir", 2, "'noir' is no topic"),
        (f"publish films {'k' * 5000}", 2, "a key of 5000 bytes is longer than 4096"),
        ("publish films --collect 'seq < 3' --topic /noir", 2, "--collect stands alone"),
        ("publish films --collect 'seq < 3' --payload x", 2, "--collect stands alone"),
        ("publish films --collect 'seq < 3' --keep", 2, "--collect stands alone"),
        ("tail films --from 0", 2, "from_seq is 1 or more, not 0"),
        ("tail films --from 9999999999999999999", 2, "is above every sequence number"),
        ("tail films --topic noir", 2, "'noir' fits no topic"),
        ("tail films --idle nan", 2, "--idle is a number of seconds up to 1,000,000,000"),
        ("tail films --idle 1e12", 2, "--idle is a number of seconds up to 1,000,000,000"),
    ],
)
def test_what_makes_no_sense_is_said(
    proxies: list[ProxyProcess], sirius: Run, line: str, code: int, message: str
) -> None:
    result = sirius(f"broadcast {line} --proxy {proxies[0].name}")
    assert (result.code, result.out) == (code, "")
    assert message in result.err


@pytest.mark.parametrize(
    "line", ["publish films k --proxy {}", "tail films --proxy {}", "status {}"]
)
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nonsense", 'nonsense: expected "host:port"'),
        ("127.0.0.1:99999", "127.0.0.1:99999: expected a port from 1 to 65535"),
        ("127.0.0.1:films", '127.0.0.1:films: expected "host:port"'),
    ],
)
def test_an_address_that_is_none_is_said(
    sirius: Run, line: str, address: str, message: str
) -> None:
    result = sirius(f"broadcast {line.format(address)}")
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_a_key_that_is_no_text_is_published_as_it_is(proxies: list[ProxyProcess]) -> None:
    def run(*words: str | bytes, given: bytes = b"") -> Any:
        command = [sys.executable, "-m", "sirius", "broadcast", *words, "--json"]
        done = subprocess.run(
            [*command, "--proxy", proxies[0].name], input=given, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout)

    raw = b"\xff\xfe"
    first = run("publish", "films", raw, "--payload", raw)["first"]
    event = run("tail", "films", "--from", str(first), "--limit", "1")
    assert base64.b64decode(event["key_base64"]) == raw
    assert base64.b64decode(event["payload_base64"]) == raw
    first = run("publish", "films", given=raw + b"\n")["first"]
    event = run("tail", "films", "--from", str(first), "--limit", "1")
    assert base64.b64decode(event["key_base64"]) == raw


def test_troubles_are_counted_in_words(
    proxies: list[ProxyProcess], sirius: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*arguments: Any) -> dict[str, Any]:
        return status_of(*arguments) | {"bad_messages": 5, "refused_messages": 1, "failures": 2}

    monkeypatch.setattr("sirius.broadcast.net.asking.status_of", told)
    out = sirius(f"broadcast status {proxies[0].name}").out
    assert "5 messages that made no sense" in out
    assert "1 message that only a proxy may send" in out
    assert "2 failures" in out


def test_a_proxy_ends_when_it_is_told_to() -> None:
    name = f"127.0.0.1:{free_ports(1)[0]}"
    with ProxyProcess("--listen", name, "--stream", "films") as proxy:
        code, _, err = proxy.end(signal.SIGTERM)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_proxy_with_clients_ends_without_a_word(number: int) -> None:
    name = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        ProxyProcess("--listen", name, "--stream", "films", "--log-level", "error") as proxy,
        ExitStack() as stack,
    ):
        sessions = [stack.enter_context(connect(name)) for _ in range(8)]
        films = [stack.enter_context(session.subscribe("films")) for session in sessions]
        sessions[0].publish("films", "key")
        assert None not in [each.get(PATIENCE_S) for each in films]
        code, _, err = proxy.end(number)
    assert (code, err) == (0, "")


def test_a_proxy_ends_with_whoever_started_it() -> None:
    name = f"127.0.0.1:{free_ports(1)[0]}"
    with ProxyProcess("--listen", name, "--stream", "films", "--until-eof") as proxy:
        # Waiting closes its standard input.
        assert proxy.end()[0] == 0


def test_a_port_that_is_taken_is_said(proxies: list[ProxyProcess]) -> None:
    with Process("broadcast", "proxy", "--listen", proxies[0].name, "--stream", "films") as second:
        code, out, err = second.end()
    assert (code, out) == (1, "")
    assert f"cannot listen on {proxies[0].name}" in err


def test_the_file_is_found_by_its_name(tmp_path: Path, sirius: Run) -> None:
    (tmp_path / "x.toml").write_text('[streams]\nfilms = "127.0.0.1:7500"\n')
    result = sirius(f"broadcast proxy --config {tmp_path / 'x.toml'}")
    assert result.code == 2
    assert "name is missing" in result.err


def test_a_stream_on_disk_survives_a_kill(tmp_path: Path, sirius: Run) -> None:
    name = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = ("--listen", name, "--stream", "films", "--data", str(tmp_path / "data"))
    with ProxyProcess(*arguments) as proxy:
        first = sirius(f"broadcast publish films a b --json --proxy {name}")
        proxy.popen.kill()
    with ProxyProcess(*arguments):
        second = sirius(f"broadcast publish films c --json --proxy {name}")
        tailed = sirius(f"broadcast tail films --from 1 --limit 3 --json --proxy {name}")
    assert [json.loads(each.out)["first"] for each in (first, second)] == [1, 3]
    found = [json.loads(line) for line in tailed.out.splitlines()]
    assert [(each["seq"], each["key"]) for each in found] == [(1, "a"), (2, "b"), (3, "c")]


def test_a_proxy_with_certificates_lets_clients_in_by_their_role(
    tmp_path: Path, sirius: Run
) -> None:
    authority = Authority(tmp_path)
    name, files = f"127.0.0.1:{free_ports(1)[0]}", authority.issue("member-1")
    (tmp_path / "proxy.toml").write_text(
        f'name = "{name}"\n[streams]\nfilms = "{name}"\n'
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        f'authority = "{files.authority}"\n'
        '[tls.roles]\n"member-*" = ["member"]\napp = ["client"]\n'
    )
    with ProxyProcess("--config", str(tmp_path / "proxy.toml")):
        words = ["broadcast", "publish", "films", "key", "--json", "--proxy", name]
        app, stranger = (sirius(*words, *files_of(authority, who)) for who in ("app", "stranger"))
        own = sirius(f"broadcast status --json --config {tmp_path / 'proxy.toml'}")
    assert (app.code, app.err) == (0, "")
    assert (stranger.code, stranger.out) == (2, "")
    assert "no role" in stranger.err
    assert json.loads(own.out)["name"] == name
