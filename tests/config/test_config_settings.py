"""The settings as Python values: defaults, checks, and what the parts of a node are started with."""

from __future__ import annotations

import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from sirius.catchup.config import CatchupConfig
from sirius.config import (
    CompactionSettings,
    HandlerSettings,
    LogSettings,
    RequestSettings,
    SiriusConfig,
    TlsSettings,
)
from sirius.config.kinds import kind_of
from sirius.errors import UsageError
from sirius.paxos.config import PaxosConfig
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Durability, Limits, LogConfig, Op, Update, encode

TLS = TlsSettings(certificate="a.pem", key="a.key", authority="ca.pem", roles={"*": ["member"]})


def test_the_default_is_one_durable_node_without_a_port() -> None:
    config = SiriusConfig()
    assert config.data == Path("sirius-data")
    assert config.is_embedded
    assert config.is_alone
    assert config.listen_address == ""
    assert config.log_config() == LogConfig()
    assert config.paxos_config() == PaxosConfig()
    assert config.catchup == CatchupConfig()


def test_what_a_node_is_needs_no_nesting() -> None:
    config = SiriusConfig(
        name="LocalHost:07400", members=["localhost:7400", "[::0:1]:7401"], data="films"
    )
    assert config.name == "localhost:7400"
    assert config.members == ("localhost:7400", "[::1]:7401")
    assert config.data == Path("films")
    assert config.listen_address == "localhost:7400"
    assert not config.is_alone
    assert not config.is_embedded


def test_listen_may_be_another_address() -> None:
    config = SiriusConfig(name="films1.example:7400", listen="0.0.0.0:7401", tls=TLS)
    assert config.listen_address == "0.0.0.0:7401"


def test_no_members_at_all_is_not_alone() -> None:
    assert not SiriusConfig(name="localhost:1", members=[]).is_alone
    assert not SiriusConfig(name="localhost:1", members_file="members").is_alone


def test_configurations_are_values() -> None:
    one = SiriusConfig(data="x", durability="os", tls=TLS)
    two = SiriusConfig(data=Path("x"), durability=Durability.OS, tls=TLS)
    assert one == two
    paths = {name: Path(getattr(TLS, name)) for name in ("certificate", "key", "authority")}
    assert TlsSettings(**paths, roles={"*": ("member",)}) == TLS
    assert pickle.loads(pickle.dumps(one)) == one
    assert dataclasses.replace(one, data="y").durability is Durability.OS
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.data = "z"  # type: ignore[misc]


# ---------------------------------------------------------------------- what the parts are started with


def test_the_log_has_the_defaults_of_the_log_package() -> None:
    theirs = {
        field.name: getattr(LogConfig(), field.name) for field in dataclasses.fields(LogConfig)
    }
    limits = dataclasses.asdict(Limits())
    theirs = {**theirs, **limits}
    for name in ("durability", "background", "limits", "linger_s"):
        del theirs[name]
    assert dataclasses.asdict(LogSettings()) == theirs


def test_every_setting_of_the_log_reaches_the_log() -> None:
    log = LogSettings(
        segment_bytes_max=1,
        segment_records_max=2,
        pending_bytes_max=3,
        retire_after_s=4,
        reserve_bytes=5,
        key_bytes_max=6,
        body_bytes_max=7,
        block_bytes_max=8000,
    )
    assert SiriusConfig(log=log, durability="memory").log_config() == LogConfig(
        durability=Durability.MEMORY,
        segment_bytes_max=1,
        segment_records_max=2,
        pending_bytes_max=3,
        retire_after_s=4,
        reserve_bytes=5,
        limits=Limits(6, 7, 8000),
    )


def test_the_timeout_of_requests_reaches_consensus() -> None:
    config = SiriusConfig(requests=RequestSettings(timeout_s=3), paxos=PaxosConfig(retry_s=0.3))
    assert config.paxos_config() == PaxosConfig(retry_s=0.3, request_timeout_s=3)
    later = dataclasses.replace(config, requests=RequestSettings(timeout_s=4))
    assert later.paxos_config().request_timeout_s == 4


def test_a_pass_of_compaction_drops_old_deletes_that_every_follower_has() -> None:
    settings = CompactionSettings(dead_fraction_min=0.5, rate_bytes_s=1000, delete_age_s=2)
    policy = SiriusConfig(compaction=settings).compaction_policy(10_000_000, Seq(7))
    assert policy == CompactionPolicy(
        dead_fraction_min=0.5,
        drop_deletes_upto=Seq(7),
        drop_deletes_before_us=8_000_000,
        rate_bytes_per_s=1000,
    )


def test_deletes_of_age_never_are_kept() -> None:
    settings = CompactionSettings(delete_age_s=math.inf)
    policy = SiriusConfig(compaction=settings).compaction_policy(10_000_000, Seq(7))
    assert policy.drop_deletes_upto == 0
    assert policy.drop_deletes_before_us is None


def test_a_rate_and_an_age_of_zero_mean_no_bound() -> None:
    settings = CompactionSettings(rate_bytes_s=0, delete_age_s=0)
    policy = SiriusConfig(compaction=settings).compaction_policy(10_000_000, Seq(7))
    assert policy == CompactionPolicy(drop_deletes_upto=Seq(7))


@pytest.mark.parametrize(("key", "body"), [(1, 1), (7, 100), (32, 1), (1, 7)])
def test_a_block_of_the_least_size_holds_the_greatest_update(key: int, body: int) -> None:
    block = encode(1, [Update(Op.PUT, b"k" * key, b"b" * body)], 1)
    settings = LogSettings(key_bytes_max=key, body_bytes_max=body)
    assert settings.update_bytes_max == len(block.raw)


# ---------------------------------------------------------------------- roles


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (["films1.example"], {"member", "client"}),
        (["FILMS1.example"], {"member", "client"}),
        (["ops.example"], {"client", "admin"}),
        (["ops.example", "films9.example"], {"member", "client", "admin"}),
        (["other.example"], {"client"}),
        (["films1.example.org"], set()),
        ([], set()),
    ],
)
def test_a_certificate_has_the_roles_of_all_patterns_that_fit(
    names: list[str], roles: set[str]
) -> None:
    tls = TlsSettings(
        roles={"Films*.example": ["member"], "*.example": ["client"], "ops.example": ["admin"]}
    )
    assert tls.roles_of(names) == roles


def test_a_certificate_of_the_authority_alone_allows_nothing() -> None:
    tls = TlsSettings(certificate="a", key="b", authority="c", roles={"ops.example": ["admin"]})
    assert tls.roles_of(["anybody"]) == set()
    assert not TlsSettings().is_on
    assert TLS.is_on
    with pytest.raises(UsageError, match=r"^tls.roles is missing, so nobody may do anything"):
        TlsSettings(certificate="a", key="b", authority="c")


# ---------------------------------------------------------------------- what is refused

FORM = '"host:port", such as "films1.example:7400", "10.0.0.1:7400" or "[::1]:7400"'
PLAIN = (
    "is beyond this machine, and updates would travel as plain text: "
    "expected tls.certificate, or allow_plaintext = true"
)
LISTENED = "an address that others can reach; this one can only be listened on"

REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (SiriusConfig, {"name": 7400}, "name = 7400: expected a text"),
    (SiriusConfig, {"name": "films1"}, f'name = "films1": expected {FORM}'),
    (SiriusConfig, {"name": "a\nb"}, f'name = "a\\nb": expected {FORM}'),
    (SiriusConfig, {"name": "a:0"}, 'name = "a:0": expected a port from 1 to 65535'),
    (SiriusConfig, {"name": "0.0.0.0:1"}, f'name = "0.0.0.0:1": expected {LISTENED}'),
    (SiriusConfig, {"name": "x" * 99}, f'name = "{"x" * 59}…: expected {FORM}'),
    (SiriusConfig, {"name": "a:1", "listen": "b"}, f'listen = "b": expected {FORM}'),
    (SiriusConfig, {"data": ""}, 'data = "": expected a path'),
    (SiriusConfig, {"data": None}, "data = None: expected a path"),
    (SiriusConfig, {"region": None}, "region = None: expected a text"),
    (SiriusConfig, {"members": "a:1"}, 'members = "a:1": expected a list of names'),
    (SiriusConfig, {"members": ["a:1", 2]}, 'members = ["a:1", 2]: expected a list of names'),
    (SiriusConfig, {"members": ["a:1", "b"]}, f'members[1] = "b": expected {FORM}'),
    (SiriusConfig, {"members": ["[::]:1"]}, f'members[0] = "[::]:1": expected {LISTENED}'),
    (
        SiriusConfig,
        {"members": ["a:1", "b:1", "A:01"]},
        'members[2] = "A:01": expected each name once; it is members[0] already',
    ),
    (
        SiriusConfig,
        {"members": [], "members_file": "x"},
        "members and members_file are both given: expected one of them",
    ),
    (SiriusConfig, {"members_file": 1}, "members_file = 1: expected a path"),
    (SiriusConfig, {"members_poll_s": 0}, "members_poll_s = 0: expected more than 0"),
    (SiriusConfig, {"follow": ["x"]}, f'follow[0] = "x": expected {FORM}'),
    (
        SiriusConfig,
        {"name": "localhost:1", "follow": ["localhost:2", "localhost:01"]},
        'follow[1] = "localhost:1": expected another node',
    ),
    *[
        (
            SiriusConfig,
            {setting: value},
            f"{setting} needs name, under which others reach this node",
        )
        for setting, value in [
            ("listen", "localhost:1"),
            ("members", ["localhost:1"]),
            ("members_file", "members"),
            ("follow", ["localhost:1"]),
        ]
    ],
    (SiriusConfig, {"allow_plaintext": 1}, "allow_plaintext = 1: expected true or false"),
    (SiriusConfig, {"new_cluster": "yes"}, 'new_cluster = "yes": expected true or false'),
    (SiriusConfig, {"metrics": None}, "metrics = None: expected true or false"),
    (
        SiriusConfig,
        {"durability": "disk"},
        'durability = "disk": expected one of "fsync", "os", "memory"',
    ),
    (SiriusConfig, {"name": "films1:1"}, f'name = "films1:1" {PLAIN}'),
    (
        SiriusConfig,
        {"name": "localhost:1", "listen": "0.0.0.0:1"},
        f'listen = "0.0.0.0:1" {PLAIN}',
    ),
    (
        SiriusConfig,
        {"name": "localhost:1", "members": ["localhost:1", "films2:1"]},
        f'members[1] = "films2:1" {PLAIN}',
    ),
    (
        SiriusConfig,
        {"name": "localhost:1", "follow": ["10.0.0.1:1"]},
        f'follow[0] = "10.0.0.1:1" {PLAIN}',
    ),
    (
        SiriusConfig,
        {"paxos": PaxosConfig(request_timeout_s=3)},
        "paxos.request_timeout_s = 3: expected nothing, because requests.timeout_s says it",
    ),
    (
        SiriusConfig,
        {"paxos": PaxosConfig(retry_s=math.inf)},
        "paxos.retry_s = inf: expected a number of seconds",
    ),
    (
        SiriusConfig,
        {"catchup": CatchupConfig(hops_max=2.5)},  # type: ignore[arg-type]
        "catchup.hops_max = 2.5: expected a whole number",
    ),
    (
        SiriusConfig,
        {"requests": RequestSettings(outstanding_bytes_max=1024)},
        "requests.outstanding_bytes_max = 1024: expected 16810096 or more, for one update of "
        "log.body_bytes_max = 16777216",
    ),
    (
        SiriusConfig,
        {"paxos": PaxosConfig(accept_bytes_max=1024)},
        "paxos.accept_bytes_max = 1024: expected 16810096 or more, for one update of "
        "log.body_bytes_max = 16777216",
    ),
    (
        RequestSettings,
        {"ack": "maybe"},
        'requests.ack = "maybe": expected one of "applied", "decided"',
    ),
    (
        RequestSettings,
        {"timeout_s": "5s"},
        'requests.timeout_s = "5s": expected a number of seconds',
    ),
    (
        RequestSettings,
        {"timeout_s": math.nan},
        "requests.timeout_s = nan: expected a number of seconds",
    ),
    (
        RequestSettings,
        {"timeout_s": True},
        "requests.timeout_s = true: expected a number of seconds",
    ),
    (RequestSettings, {"timeout_s": 0}, "requests.timeout_s = 0: expected more than 0"),
    (
        RequestSettings,
        {"outstanding_max": 1.5},
        "requests.outstanding_max = 1.5: expected a whole number",
    ),
    (
        RequestSettings,
        {"outstanding_bytes_max": 1e6},
        "requests.outstanding_bytes_max = 1000000.0: expected a whole number of bytes",
    ),
    (HandlerSettings, {"retries": -1}, "handler.retries = -1: expected 0 or more"),
    (HandlerSettings, {"hang_s": 0}, "handler.hang_s = 0: expected more than 0"),
    (HandlerSettings, {"behind_max": 0}, "handler.behind_max = 0: expected more than 0"),
    (
        HandlerSettings,
        {"replay": "fast"},
        'handler.replay = "fast": expected one of "serial", "parallel", "newest"',
    ),
    (LogSettings, {"segment_bytes_max": 0}, "log.segment_bytes_max = 0: expected more than 0"),
    (
        LogSettings,
        {"block_bytes_max": 1024**3 + 1},
        "log.block_bytes_max = 1073741825: expected at most 1073741824",
    ),
    (
        LogSettings,
        {"body_bytes_max": 64 * 1024**2},
        "log.block_bytes_max = 67108864: expected 67141744 or more, for one update of "
        "log.body_bytes_max = 67108864 and log.key_bytes_max = 32768",
    ),
    (CompactionSettings, {"interval_s": 0}, "compaction.interval_s = 0: expected more than 0"),
    (
        CompactionSettings,
        {"dead_fraction_min": 1.5},
        "compaction.dead_fraction_min = 1.5: expected a number from 0 to 1",
    ),
    (
        CompactionSettings,
        {"delete_age_s": -math.inf},
        "compaction.delete_age_s = -inf: expected a number of seconds",
    ),
    (CompactionSettings, {"rate_bytes_s": -1}, "compaction.rate_bytes_s = -1: expected 0 or more"),
    (TlsSettings, {"certificate": 5}, "tls.certificate = 5: expected a path"),
    (TlsSettings, {"key": "k"}, "tls.key needs tls.certificate and tls.authority as well"),
    (
        TlsSettings,
        {"certificate": "c", "authority": "a"},
        "tls.certificate needs tls.key as well",
    ),
    (TlsSettings, {"roles": ["a"]}, 'tls.roles = ["a"]: expected a table of lists of roles'),
    (
        TlsSettings,
        {"roles": {"*": "member"}},
        'tls.roles = {"*" = "member"}: expected a table of lists of roles',
    ),
    (
        TlsSettings,
        {"roles": {"*.a": ["member", "boss"]}},
        'tls.roles."*.a"[1] = "boss": expected one of "member", "follower", "client", "admin"',
    ),
]


@pytest.mark.parametrize(("settings", "values", "message"), REFUSED)
def test_a_bad_value_is_refused_with_its_name(
    settings: type, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        settings(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "values",
    [
        {"name": "films1:1", "tls": TLS},
        {"name": "films1:1", "allow_plaintext": True},
        {"name": "127.0.0.1:1", "members": ["localhost:1", "[::1]:2"]},
    ],
)
def test_updates_travel_encrypted_or_stay_or_somebody_said_so(values: dict[str, Any]) -> None:
    SiriusConfig(**values)


def test_names_of_a_member_file_are_held_to_the_same() -> None:
    config = SiriusConfig(name="localhost:1", members_file="members")
    config.check_members(["localhost:1"])
    with pytest.raises(UsageError) as caught:
        config.check_members(["localhost:1", "films2:1"])
    assert str(caught.value) == f'members = "films2:1" {PLAIN}'
    dataclasses.replace(config, allow_plaintext=True).check_members(["films2:1"])


def test_an_unheard_of_type_is_no_setting() -> None:
    with pytest.raises(TypeError, match=r"x: .*bytes.* is no type of a setting"):
        kind_of("x", bytes)
