"""Options of the data source, and what is said of bad ones."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sirius.errors import UsageError
from spark_connector.options import Options, Use
from spark_connector.paths import local_path
from spark_connector.schema import schema_of
from spark_connector.source import SiriusDataSource


def test_names_are_found_in_lower_case_as_spark_hands_them_over() -> None:
    options = Options.of({"path": "films", "fromseq": "7", "oncorrupt": "SKIP", "verify": "false"})
    assert options == Options(paths=("films",), from_seq=7, on_corrupt="skip", verify=False)


def test_several_paths_come_as_json() -> None:
    assert Options.of({"paths": '["north", "south"]'}).paths == ("north", "south")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("12", 12),
        ("2026-11-16T12:00:00Z", datetime(2026, 11, 16, 12, tzinfo=UTC)),
        ("2026-11-16 12:00:00", datetime(2026, 11, 16, 12, tzinfo=UTC)),
    ],
)
def test_a_state_is_that_of_a_number_or_of_a_time(text: str, moment: object) -> None:
    assert Options.of({"view": "state", "asof": text}).as_of == moment


def test_what_spark_itself_adds_is_no_option() -> None:
    assert Options.of({"checkpointlocation": "x"}) == Options()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fromsec": "1"}, "there is no option 'fromsec'; did you mean fromSeq?"),
        ({"zzz": "1"}, "there is no option 'zzz'; there are path, view, asOf"),
        ({"fromseq": "-1"}, "fromSeq is a number from 1 on, not '-1'"),
        ({"verify": "maybe"}, "verify is true or false, not 'maybe'"),
        ({"view": "all"}, "view is updates, state or changes, not 'all'"),
        ({"columns": " , "}, "columns is a list such as a,b"),
        ({"view": "state", "asof": "noon"}, "asOf is a sequence number or a time such as"),
        ({"asof": "1"}, "asOf says which state to read: it needs view=state"),
        ({"view": "state", "asof": "5", "toseq": "9"}, "cannot be given together"),
        ({"view": "state", "fromseq": "5"}, "use view=changes with fromSeq"),
        ({"fromseq": "5", "toseq": "4"}, "fromSeq 5 lies behind toSeq 4"),
        ({"tlscert": "c.pem"}, "tlsCa, tlsCert and tlsKey belong together"),
    ],
)
def test_bad_options_are_told(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Options.of(given)
    assert message in str(error.value)


def test_one_path_is_needed_where_more_make_no_sense() -> None:
    with pytest.raises(UsageError, match="no path was given"):
        _ = Options().path
    with pytest.raises(UsageError, match="2 paths were given"):
        _ = Options(paths=("a", "b")).path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("/a/../b/", "/b"),
        ("logs/films", f"{os.getcwd()}/logs/films"),
        ("/films: a title", "/films: a title"),
    ],
)
def test_paths_as_users_of_spark_write_them(given: str, path: str) -> None:
    assert local_path(given) == path


@pytest.mark.parametrize(
    ("given", "use", "message"),
    [
        ({"endpoint": "a:1"}, Use.READ, "endpoint is an option of spark.readStream and publishing"),
        ({"asof": "5", "view": "state"}, Use.STREAM, "asOf is an option of spark.read; it means"),
        ({"report": "r"}, Use.STREAM, "it means nothing to spark.readStream"),
        ({"pushfilters": "true"}, Use.STREAM, "it means nothing to spark.readStream"),
        ({"fromseq": "5"}, Use.WRITE, "it means nothing to writing a log"),
        ({"txnid": "x"}, Use.WRITE, "txnId is an option of publishing to a cluster"),
        ({"segmentbytes": "5"}, Use.PUBLISH, "it means nothing to publishing to a cluster"),
    ],
)
def test_an_option_that_would_not_be_heard_is_refused(
    given: dict[str, str], use: Use, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        Options.of(given, use)
    assert message in str(error.value)
    assert Options.of(given) is not None


def test_the_source_says_what_options_are_for(tmp_path: Path) -> None:
    source = SiriusDataSource({"path": str(tmp_path), "txnid": "x"})
    for make in (source.reader, source.streamReader):
        with pytest.raises(UsageError, match=r"means nothing to spark\.read"):
            make(schema_of())
    with pytest.raises(UsageError, match="means nothing to writing a log"):
        source.writer(schema_of(), False)
    publishing = SiriusDataSource({"endpoint": "127.0.0.1:1", "txnid": "x"})
    assert publishing.writer(schema_of(), False) is not None
    assert publishing.streamWriter(schema_of(), False) is not None


def test_the_page_names_options_that_are_there_and_all_of_them() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    known = {each.metadata["option"] for each in fields(Options) if each.metadata}
    used = set(re.findall(r'option\(\s*"(\w+)"', page)) - {"checkpointLocation"}
    assert used
    assert used <= known
    assert {name for name in known if f"`{name}`" not in page} == set()
