"""TOML files: what they give, and what is said about bad ones."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.config import CompactionSettings, RequestSettings, SiriusConfig, TlsSettings
from sirius.config.kinds import FLAG, Kind, kinds_of
from sirius.config.loading import HIDDEN, load, sections
from sirius.errors import UsageError
from sirius.paxos.config import PaxosConfig
from sirius.wal import Durability

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "docs" / "example-sirius.toml"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sirius.toml"


def loaded(path: Path, text: str) -> SiriusConfig:
    path.write_text(text, encoding="utf-8")
    return SiriusConfig.load(path)


def message_of(path: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(path, text)
    return str(caught.value).replace(str(path), "sirius.toml")


# ---------------------------------------------------------------------- good files


def test_an_empty_file_is_the_default_with_its_data_beside_it(path: Path) -> None:
    assert loaded(path, "") == SiriusConfig(data=path.parent / "sirius-data")


def test_a_file_says_what_python_says(path: Path) -> None:
    text = """
        name = "Films1.example:7400"
        data = "films"
        members_file = "/etc/members"
        durability = "os"

        requests.timeout_s = "250ms"
        [compaction]
        delete_age_s = "never"
        rate_bytes_s = "1GB"
        dead_fraction_min = 1
        [tls]
        certificate = "tls/a.pem"
        key = "../a.key"
        authority = "ca.pem"
        roles = { "*" = ["member"] }
        [paxos]
        heartbeat_s = 1
        election_timeout_s = "5s"
        batch_bytes_max = "64KiB"
        lease = true
    """
    folder = path.parent
    assert loaded(path, text) == SiriusConfig(
        name="films1.example:7400",
        data=folder / "films",
        members_file="/etc/members",
        durability=Durability.OS,
        requests=RequestSettings(timeout_s=0.25),
        compaction=CompactionSettings(delete_age_s=math.inf, rate_bytes_s=1e9, dead_fraction_min=1),
        tls=TlsSettings(
            certificate=folder / "tls/a.pem",
            key=folder / "../a.key",
            authority=folder / "ca.pem",
            roles={"*": ["member"]},
        ),
        paxos=PaxosConfig(heartbeat_s=1, election_timeout_s=5, batch_bytes_max=65536, lease=True),
    )


def test_paths_stay_where_they_are_when_the_process_moves(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text('data = "films"')
    monkeypatch.chdir(path.parent)
    config = SiriusConfig.load("sirius.toml")
    assert config.data == path.parent / "films"


def test_a_path_may_begin_at_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/films")
    assert loaded(path, 'data = "~/log"').data == Path("/home/films/log")


def test_no_environment_variable_changes_a_setting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRIUS_REGION", "x")
    monkeypatch.setenv("SIRIUS_DURABILITY", "memory")
    assert loaded(path, "") == SiriusConfig(data=path.parent / "sirius-data")


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(path: Path) -> None:
    path.write_bytes(b'\xef\xbb\xbfregion = "eu"\r\n[requests]\r\nack = "decided"\r\n')
    config = SiriusConfig.load(path)
    assert (config.region, config.requests.ack) == ("eu", "decided")


def test_the_example_can_be_loaded() -> None:
    config = SiriusConfig.load(EXAMPLE)
    assert config.members is not None
    assert len(config.members) == 3
    assert config.tls.roles_of(["ops.example"]) == {"client", "admin"}


def test_the_example_says_the_truth_about_defaults(path: Path) -> None:
    lines = EXAMPLE.read_text("utf-8").splitlines()
    # Settings at the top that are commented out show other values, for there is no default to show; durability does.
    shown = [line for line in lines if re.match(r"\[(?!tls)|# \w+ = ", line)]
    after = shown.index("[requests]")
    text = "\n".join(line.removeprefix("# ") for line in shown[after:])
    assert text.count("=") > 10
    text = 'durability = "fsync"\n' + text
    assert '# durability = "fsync"' in lines
    assert loaded(path, text) == SiriusConfig(data=path.parent / "sirius-data")


# ---------------------------------------------------------------------- bad files

FORM = '"host:port", such as "films1.example:7400", "10.0.0.1:7400" or "[::1]:7400"'
DURATIONS = 'seconds as a number, or "250ms", "5s", "10min", "1h", "7d"'
SIZES = 'a whole number of bytes, or "64KiB", "64MiB", "1GB"'
KNOWN_TOP = (
    "name, listen, data, region, members, members_file, members_poll_s, follow, allow_plaintext, "
    "new_cluster, durability, metrics, requests, handler, log, compaction, tls, paxos, catchup"
)

BAD = [
    # Not TOML.
    ("a = 1\nb = ", "2: this is not TOML: Invalid value (at the end of the file)"),
    (
        'name "x"\n',
        "1: this is not TOML: Expected '=' after a key in a key/value pair (column 6)",
    ),
    ("[log]\n\n[log]\n", "3: this is not TOML: Cannot declare ('log',) twice (column 5)"),
    ('x = """\nabc\n\n', "2: this is not TOML: Unterminated string (at the end of the file)"),
    # No such setting.
    ('\nnmae = "a:1"', "2: there is no setting nmae; did you mean name?"),
    (
        "[requests]\n# five\ntimout_s = 5",
        "3: there is no setting requests.timout_s; did you mean requests.timeout_s?",
    ),
    (
        "[requests]\ntimeout = 5",
        "2: there is no setting requests.timeout; did you mean requests.timeout_s?",
    ),
    ("[request]\nack = 1", "1: there is no table [request]; did you mean [requests]?"),
    ("[node]\nname = 'a:1'", f"1: there is no table [node]; known are {KNOWN_TOP}"),
    (
        "[paxos]\nregion = 'eu'",
        "2: there is no setting paxos.region; region stands at the top of the file, before the "
        "first table",
    ),
    (
        "level_slots = 7",
        "1: there is no setting level_slots; did you mean paxos.level_slots?",
    ),
    (
        "[tls]\ninterval_s = 7",
        "2: there is no setting tls.interval_s; "
        "did you mean compaction.interval_s or catchup.interval_s?",
    ),
    (
        "[requests]\nzzz = 7",
        "2: there is no setting requests.zzz; "
        "known are ack, timeout_s, outstanding_max, outstanding_bytes_max",
    ),
    (
        "[requests.more]\nx = 1",
        "1: there is no table [requests.more]; "
        "known are ack, timeout_s, outstanding_max, outstanding_bytes_max",
    ),
    (
        "[paxos]\nrequest_timeout = 3",
        "2: there is no setting paxos.request_timeout; did you mean paxos.election_timeout_s?",
    ),
    (
        "[paxos]\nrequest_timeout_s = 3",
        "2: paxos.request_timeout_s: expected nothing, because requests.timeout_s says it",
    ),
    # Values of another kind.
    ("requests = 5", "1: requests = 5: expected a table, [requests]"),
    ("[[requests]]\n", "1: requests = [{}]: expected a table, [requests]"),
    ("name = 7400", "1: name = 7400: expected a text"),
    ("metrics = 1", "1: metrics = 1: expected true or false"),
    ("metrics = 'yes'", '1: metrics = "yes": expected true or false'),
    ("data = 1979-05-27", "1: data = 1979-05-27: expected a path"),
    ("data = ''", '1: data = "": expected a path'),
    ("members = 'a:1'", '1: members = "a:1": expected a list of names'),
    ("members = [1]", "1: members = [1]: expected a list of names"),
    ("durability = 'ssd'", '1: durability = "ssd": expected one of "fsync", "os", "memory"'),
    (
        "[requests]\nack = 'never'",
        '2: requests.ack = "never": expected one of "applied", "decided"',
    ),
    (
        "[requests]\ntimeout_s = '5 parsecs'",
        f'2: requests.timeout_s = "5 parsecs": expected {DURATIONS}',
    ),
    ("[requests]\ntimeout_s = true", f"2: requests.timeout_s = true: expected {DURATIONS}"),
    ("[requests]\ntimeout_s = nan", f"2: requests.timeout_s = nan: expected {DURATIONS}"),
    ("[requests]\ntimeout_s = 'never'", f'2: requests.timeout_s = "never": expected {DURATIONS}'),
    (
        "[compaction]\ndelete_age_s = 'long'",
        f'2: compaction.delete_age_s = "long": expected {DURATIONS}, or "never"',
    ),
    (
        "[compaction]\nrate_bytes_s = 'fast'",
        f'2: compaction.rate_bytes_s = "fast": expected {SIZES}',
    ),
    (
        "[log]\nbody_bytes_max = '1 elephant'",
        f'2: log.body_bytes_max = "1 elephant": expected {SIZES}',
    ),
    ("[log]\nbody_bytes_max = 1e6", f"2: log.body_bytes_max = 1000000.0: expected {SIZES}"),
    ("[handler]\nretries = 1.5", "2: handler.retries = 1.5: expected a whole number"),
    ("[handler]\nretries = '3'", '2: handler.retries = "3": expected a whole number'),
    (
        "[tls.roles]\na = 'member'",
        '1: tls.roles = {"a" = "member"}: expected a table of lists of roles',
    ),
    # Values out of range, and at odds with each other.
    ("\nmembers_poll_s = 0", "2: members_poll_s = 0: expected more than 0"),
    ("[requests]\n\ntimeout_s = '0s'", "3: requests.timeout_s = 0.0: expected more than 0"),
    ("requests = { timeout_s = -1 }", "1: requests.timeout_s = -1: expected more than 0"),
    (
        "name = 'localhost:1'\nmembers = [\n  'localhost:1',\n  'localhost',\n]",
        f'4: members[1] = "localhost": expected {FORM}',
    ),
    (
        "name = 'localhost:1'\nfollow = [\n  'localhost:3',\n  'LOCALHOST:3',\n]",
        '4: follow[1] = "LOCALHOST:3": expected each name once; it is follow[0] already',
    ),
    (
        "\nname = 'films1:1'",
        '2: name = "films1:1" is beyond this machine, and updates would travel as plain text: '
        "expected tls.certificate, or allow_plaintext = true",
    ),
    (
        "data = 'x'\nmembers = ['localhost:1']",
        "2: members needs name, under which others reach this node",
    ),
    (
        "name = 'localhost:1'\nmembers_file = 'x'\nmembers = []",
        "3: members and members_file are both given: expected one of them",
    ),
    (
        "[tls]\nkey = 'x'\n",
        "2: tls.key needs tls.certificate and tls.authority as well",
    ),
    (
        "[tls.roles]\n'*.a' = [\n'member',\n'boss']",
        '4: tls.roles."*.a"[1] = "boss": expected one of "member", "follower", "client", "admin"',
    ),
    (
        "[paxos]\nretry_s = 1\nheartbeat_s = 3",
        "3: paxos.heartbeat_s = 3 must be above 0 and below election_timeout_s = 0.3",
    ),
    (
        "[paxos]\nretry_s = 1\nelection_timeout_s = '50ms'",
        "3: paxos.heartbeat_s = 0.075 must be above 0 and below election_timeout_s = 0.05",
    ),
    ("[paxos]\nretry_s = -1", "2: paxos.retry_s = -1 is negative"),
    (
        "[catchup]\n\nwindow_slots_max = 7",
        "3: catchup.window_slots_min = 256 must be above 0 and at most window_slots_max = 7",
    ),
    (
        "[paxos]\naccept_bytes_max = '1B'\n[log]\n",
        "2: paxos.accept_bytes_max = 1: expected 16810096 "
        "or more, for one update of log.body_bytes_max = 16777216",
    ),
    (
        "[log]\nbody_bytes_max = '63MiB'\n[requests]\noutstanding_bytes_max = '32MiB'",
        "4: requests.outstanding_bytes_max = 33554432: expected 66093168 or more, for one update of "
        "log.body_bytes_max = 66060288",
    ),
    (
        "[log]\nbody_bytes_max = '63MiB'\nblock_bytes_max = '256MiB'\n[paxos]\naccept_bytes_max='32MiB'",
        "5: paxos.accept_bytes_max = 33554432: expected 66093168 or more, for one update of "
        "log.body_bytes_max = 66060288",
    ),
    (
        "[requests]\n[log]\nblock_bytes_max = '1GiB'\nbody_bytes_max = '512MiB'\n",
        "4: requests.outstanding_bytes_max = 67108864: expected 536903792 or more, for one update of "
        "log.body_bytes_max = 536870912",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_file_is_told_its_line_and_what_was_expected(
    path: Path, text: str, message: str
) -> None:
    assert message_of(path, text) == f"sirius.toml, line {message}"


def test_all_mistakes_are_told_at_once_in_their_order(path: Path) -> None:
    text = """\
        nmae = "x"
        metrics = 1
        [paxos]
        heartbeat_s = 9
        [requests]
        timeout_s = 0
        ack = "no"
        [handler]
        retries = -1
    """
    assert message_of(path, text).splitlines() == [
        "sirius.toml, line 1: there is no setting nmae; did you mean name?",
        "sirius.toml, line 2: metrics = 1: expected true or false",
        "sirius.toml, line 4: paxos.heartbeat_s = 9 must be above 0 and below "
        "election_timeout_s = 0.3",
        "sirius.toml, line 6: requests.timeout_s = 0: expected more than 0",
        'sirius.toml, line 7: requests.ack = "no": expected one of "applied", "decided"',
        "sirius.toml, line 9: handler.retries = -1: expected 0 or more",
    ]


def test_a_bad_name_is_told_with_the_others(path: Path) -> None:
    found = message_of(path, 'name = "films1"\nmetrics = 1\n').splitlines()
    assert [line.partition(": expected")[0] for line in found] == [
        'sirius.toml, line 1: name = "films1"',
        "sirius.toml, line 2: metrics = 1",
    ]


def test_what_is_only_wrong_because_another_setting_is_bad_is_not_told(path: Path) -> None:
    """Without the certificate, whose table is left out, the name would be beyond this machine."""
    found = message_of(path, 'name = "films1.example:7400"\n[tls]\ncertificate = 7\n')
    assert found == "sirius.toml, line 3: tls.certificate = 7: expected a path"


def test_brackets_without_end_are_told(path: Path) -> None:
    expected = "sirius.toml: too many brackets within brackets"
    assert message_of(path, "a = " + "[" * 100_000) == expected


def test_a_number_that_python_does_not_read_is_told(path: Path) -> None:
    message = message_of(path, "name = " + "9" * 5000)
    assert message.startswith("sirius.toml: this is not TOML: Exceeds the limit")


# ---------------------------------------------------------------------- files that are none


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "none.toml")
    assert str(caught.value) == f"{tmp_path}/none.toml: there is no such file"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "pipe")
    assert str(caught.value) == f"{tmp_path}/pipe: this is not a file that holds text"


def test_a_path_that_cannot_be_one_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        load("a\0b")
    assert str(caught.value) == "'a\\x00b': embedded null byte"


def test_a_file_without_end_is_not_read_to_its_end(path: Path) -> None:
    path.write_bytes(b"#" * (1024 * 1024) + b"\n")
    with pytest.raises(UsageError, match=r"sirius.toml: has more than 1048576 bytes$"):
        load(path)


def test_bytes_that_are_no_text_are_told_with_their_line(path: Path) -> None:
    path.write_bytes(b"# fine\n\ndata = '\xff'\n")
    with pytest.raises(UsageError, match=r"sirius.toml, line 3: this is not UTF-8$"):
        load(path)


# ---------------------------------------------------------------------- any file

KEYS = st.sampled_from(
    ["name", "members", "data", "timeout_s", "ack", "retries", "heartbeat_s", "nmae", "roles"]
)
VALUES = st.sampled_from(
    "1|-1|0.5|nan|'5s'|'64MiB'|'a:1'|''|true|[]|['a:1', 'b']|{}|{a = 1}|1979-05-27|'applied'".split(
        "|"
    )
)
HEADERS = st.sampled_from(["requests", "paxos", "tls", "handler", "log", "x", "tls.roles"])
STATEMENTS = st.builds("{} = {}".format, KEYS, VALUES) | st.builds("[{}]".format, HEADERS)


@given(st.lists(STATEMENTS, max_size=6).map("\n".join) | st.text(max_size=40))
def test_any_text_is_a_configuration_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    said = ""
    try:
        load(path)
    except UsageError as error:
        said = str(error)
    assert [line for line in said.split("\n") if line and not line.startswith(str(path))] == []


# ---------------------------------------------------------------------- every setting


def settings() -> list[tuple[str, str, Kind]]:
    found = [("", name, kind) for name, kind in kinds_of(SiriusConfig).items()]
    for section, its in sections().items():
        found += [(section, name, kind) for name, kind in kinds_of(its).items()]
    return [row for row in found if row[:2] not in HIDDEN]


@pytest.mark.parametrize(
    ("section", "name", "kind"), settings(), ids=lambda part: getattr(part, "label", part)
)
def test_the_default_of_every_setting_can_be_written_as_it_is_shown(
    path: Path, section: str, name: str, kind: Kind
) -> None:
    default: Any = getattr(SiriusConfig(), section) if section else SiriusConfig()
    value = getattr(default, name)
    if value is None or name in ("name", "listen"):
        return
    header = f"[{section}]\n" if section else ""
    config = loaded(path, f"{header}{name} = {kind.show(value)}\n")
    assert config == SiriusConfig(data=path.parent / "sirius-data")


@pytest.mark.parametrize(
    ("section", "name"),
    [row[:2] for row in settings() if row[2].is_number or row[2].label == FLAG.label],
)
def test_every_number_and_every_flag_of_a_file_reaches_its_field(
    path: Path, section: str, name: str
) -> None:
    base: Any = getattr(SiriusConfig(), section) if section else SiriusConfig()
    value = other_than(getattr(base, name))
    header = f"[{section}]\n" if section else ""
    config: Any = loaded(path, f"{header}{name} = {json.dumps(value)}\n")
    found = getattr(config, section) if section else config
    assert getattr(found, name) == value
    assert dataclasses.replace(found, **{name: getattr(base, name)}) == (
        base if section else dataclasses.replace(base, data=path.parent / "sirius-data")
    )


def other_than(default: Any) -> Any:
    """Another value that is right by itself and keeps every pair of settings in its order."""
    if default is None or isinstance(default, bool):
        return not default
    return default * 0.75 if isinstance(default, float) else default + 1
