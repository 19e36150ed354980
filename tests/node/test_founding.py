"""A node that finds a log: whose is it, and may it begin a cluster with it?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sirius import Sirius, SiriusConfig
from sirius.errors import RequestRejected
from sirius.testing.processes import free_ports
from sirius.wal import Log
from tests.driver.waiting import until
from tests.node.nodes import FAST, SMALL, Dict, config


def imported(folder: Path) -> None:
    """Make a log that was never a cluster's."""
    with Log.open(folder / "data") as log:
        for number in range(10):
            log.put(f"k{number}", b"v")


def run(settings: SiriusConfig, key: str) -> tuple[str, dict[str, bytes]]:
    """Put a key on a lone node; return its cluster and its state."""
    handler = Dict()
    sirius = Sirius(handler, settings)
    try:
        assert sirius.wait_until_ready(30)
        sirius.enqueue_put(key, b"v").result(30)
        return sirius.status().cluster, dict(handler.values)
    finally:
        sirius.close()


def test_an_imported_log_becomes_the_data_of_a_node(tmp_path: Path) -> None:
    imported(tmp_path)
    first, values = run(config(tmp_path), "new")
    assert len(values) == 11
    again, values = run(config(tmp_path), "newer")
    assert again == first
    assert len(values) == 12


def test_it_does_not_begin_a_cluster_with_others(tmp_path: Path) -> None:
    """Theirs may be empty or have something else in it, and they would all count as having agreed on it."""
    imported(tmp_path)
    me, other = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = config(tmp_path, name=me, members=[me, other])
    sirius = Sirius(Dict(), settings)
    try:
        assert not sirius.wait_until_ready(10 * FAST.election_timeout_s)
        assert sirius.status().voters == ()
    finally:
        sirius.close()


def copy(source: Path, target: Path) -> None:
    """Copy a node's log without its journal, as a backup does."""
    shutil.copytree(source / "data", target / "data", ignore=shutil.ignore_patterns("journal"))


def test_a_backup_is_another_clusters_until_the_operator_says_otherwise(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    cluster, _ = run(config(old), "kept")
    copy(old, new)
    sirius = Sirius(Dict(), config(new))
    try:
        assert not sirius.wait_until_ready(10 * FAST.election_timeout_s)
        assert sirius.status().cluster == cluster
        assert sirius.status().role == "follower"
    finally:
        sirius.close()


def test_with_his_word_it_begins_a_cluster_of_its_own(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    cluster, _ = run(config(old), "kept")
    copy(old, new)
    founded, values = run(config(new, new_cluster=True), "added")
    assert founded != cluster
    assert values.keys() == {"kept", "added"}
    # The setting may stay or go: it says nothing to a node that has a cluster.
    for settings in (config(new, new_cluster=True), config(new)):
        again, values = run(settings, "later")
        assert again == founded
        assert values.keys() == {"kept", "added", "later"}


def test_a_request_on_a_node_without_a_cluster_is_rejected_in_time(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    run(config(old), "kept")
    copy(old, new)
    from sirius.config.settings import RequestSettings

    settings = SiriusConfig(
        data=new / "data", paxos=FAST, log=SMALL, requests=RequestSettings(timeout_s=0.2)
    )
    sirius = Sirius(Dict(), settings)
    try:
        with pytest.raises(RequestRejected, match="no leader took it in time"):
            sirius.enqueue_put("k", b"v").result(30)
    finally:
        sirius.close()


def test_a_node_whose_members_are_of_another_cluster_says_so_and_neither_mixes_them(
    tmp_path: Path,
) -> None:
    """Somebody has copied the wrong member file: there is nothing to be done but to say it."""
    names = [f"127.0.0.1:{port}" for port in free_ports(2)]
    folders = [tmp_path / "ours", tmp_path / "theirs"]
    for folder, name in zip(folders, names, strict=True):
        folder.mkdir()
        run(config(folder, name=name, members=[name]), name)
    theirs = Sirius(mine := Dict(), config(folders[1], name=names[1], members=[names[1]]))
    lost = Sirius(other := Dict(), config(folders[0], name=names[0], members=[names[1]]))
    try:
        assert theirs.wait_until_ready(30)
        until(lambda: "belongs to the cluster" in (lost.status().problem or ""))
        problem = lost.status().problem or ""
        assert problem.startswith(f"{names[1]} belongs to the cluster {theirs.status().cluster}")
        assert f"this node to {lost.status().cluster}" in problem
        assert theirs.enqueue_put("more", b"v").result(30).seq
        assert theirs.status().problem is None, "it is none of its business"
        assert (theirs.status().voters, theirs.status().learners) == ((names[1],), ())
        assert [{*mine.values}, {*other.values}] == [{names[1], "more"}, {names[0]}]
    finally:
        lost.close()
        theirs.close()
    # With its own file it goes on, and has what it had.
    _, values = run(config(folders[0], name=names[0], members=[names[0]]), "back")
    assert values.keys() == {names[0], "back"}
