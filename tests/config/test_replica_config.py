"""The settings of a replica: a file, and mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirius.errors import UsageError
from tests.config.test_broadcast_config import HERE, THERE, load

NODE = "127.0.0.1:7400"
TOP = f'name = "{HERE}"\n'
STREAMS = '[streams]\nfilms = "cinema"\n'
CHAINS = f'[chains]\ncinema = ["{HERE}", "{THERE}"]\n'
REPLICA = f'[replica]\nproxy = "cinema"\ncluster = ["{NODE}"]\n'


def test_a_file_makes_a_replica(tmp_path: Path) -> None:
    text = TOP + STREAMS + CHAINS + REPLICA + '[neighbours]\nsuspect_s = "3s"\n'
    config = load(tmp_path, text)
    assert config.streams == {"films": "cinema"}
    assert config.chains == {"cinema": (HERE, THERE)}
    assert (config.proxy_name, config.name) == ("cinema", HERE)
    assert config.replica.cluster == (NODE,)
    assert config.replica.may_found
    assert config.neighbours.suspect_s == 3
    assert config.addresses() == (HERE, THERE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOP + STREAMS + CHAINS, "line 4: chains is for replicas: expected replica.proxy"),
        (
            TOP + STREAMS + CHAINS + '[replica]\nproxy = "cinema"\n',
            'line 7: replica.proxy = "cinema", but replica.cluster is missing: expected',
        ),
        (
            TOP + STREAMS + CHAINS + f'[replica]\ncluster = ["{NODE}"]\n',
            "line 7: replica.cluster needs replica.proxy",
        ),
        (
            TOP + STREAMS + CHAINS + REPLICA.replace("cinema", "theatre"),
            'line 7: replica.proxy = "theatre": expected one of chains: cinema',
        ),
        (
            TOP.replace("7500", "7777") + STREAMS + CHAINS + REPLICA,
            f'line 1: name = "127.0.0.1:7777": expected one of chains."cinema": {HERE}, {THERE}',
        ),
        (
            TOP + STREAMS + f'prices = "{HERE}"\n' + CHAINS + REPLICA,
            f'line 4: streams."prices" = "{HERE}": expected one of chains: cinema',
        ),
        (
            TOP + STREAMS + CHAINS + f'other = ["{THERE}"]\n' + REPLICA,
            f'line 6: chains."other" = "{THERE}": expected another address',
        ),
        (
            TOP + STREAMS + '[chains]\ncinema = ["here"]\n' + REPLICA,
            'line 5: chains."cinema"\\[0\\] = "here": expected "host:port"',
        ),
        (
            TOP + STREAMS + '[chains]\ncinema = "here"\n' + REPLICA,
            "line 4: chains = .*: expected a table of lists of names",
        ),
        (
            TOP + STREAMS + CHAINS + REPLICA.replace(NODE, "here"),
            'line 8: replica.cluster\\[0\\] = "here": expected "host:port"',
        ),
        (
            TOP + STREAMS + CHAINS + REPLICA.replace(NODE, "far.example:7400"),
            "line 8: replica.cluster.*beyond this machine.*allow_plaintext",
        ),
        (TOP + 'data = "x"\n' + STREAMS + CHAINS + REPLICA, "line 2: data = .*: expected nothing"),
        (
            TOP + STREAMS + CHAINS + REPLICA + f'[logs]\nfilms = ["{NODE}"]\n',
            'line 10: logs."films" = .*: expected nothing',
        ),
        (
            TOP + STREAMS + CHAINS + REPLICA.replace("proxy", "proxi"),
            "line 7: there is no setting replica.proxi; did you mean replica.proxy",
        ),
        (
            TOP + STREAMS + CHAINS + REPLICA + "[neighbours]\nsuspect_s = 0.1\n",
            "line 10: neighbours.suspect_s = 0.1 is less than two beats",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_its_cure(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load(tmp_path, text)
