"""The settings of a proxy: files, mistakes in them, and the page that lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirius.config.broadcast import BroadcastConfig
from sirius.config.broadcast_reference import page
from sirius.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
HERE = "127.0.0.1:7500"
THERE = "127.0.0.1:7501"


def load(folder: Path, text: str) -> BroadcastConfig:
    (folder / "proxy.toml").write_text(text)
    return BroadcastConfig.load(folder / "proxy.toml")


def test_a_file_says_everything(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f'name = "{HERE}"\ndata = "streams"\ndurability = "os"\nproxies = ["{HERE}", "{THERE}"]\n'
        f'[streams]\nfilms = "{HERE}"\n"prices.eu" = "{THERE}"\n'
        '[proxy]\nwindow_bytes = "1MiB"\n[region]\nfanout = 7\n[limits]\nkey_bytes_max = "1KiB"\n',
    )
    assert config.streams == {"films": HERE, "prices.eu": THERE}
    assert config.data == tmp_path / "streams"
    machine = config.proxy_config()
    assert machine.window_bytes == 1 << 20
    assert (machine.region.fanout, machine.limits.key_bytes_max) == (7, 1024)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'[streams]\nfilms = "{HERE}"\n', "name is missing"),
        (f'name = "{HERE}"\n', "streams is missing"),
        (f'name = "0.0.0.0:7500"\n[streams]\nfilms = "{HERE}"\n', "line 1: name"),
        (f'name = "{HERE}"\n[streams]\nfilms = "there"\n', 'streams.films = "there": expected'),
        (f'name = "{HERE}"\n[streams]\n"/a" = "{HERE}"\n', "line 3: .*a stream's name"),
        (
            f'name = "{HERE}"\nproxies = ["{THERE}"]\n[streams]\nfilms = "{THERE}"\n',
            "line 2: proxies.*expected name",
        ),
        (
            f'name = "{HERE}"\nproxies = ["{HERE}"]\n[streams]\nfilms = "{THERE}"\n',
            "line 4: .*expected one of proxies",
        ),
        (
            'name = "films.example:7500"\n[streams]\nfilms = "films.example:7500"\n',
            "line 1: name.*beyond this machine.*allow_plaintext",
        ),
        (f'name = "{HERE}"\n[streams]\nfilms = "{HERE}"\n[proxy]\ngap_s = 0\n', "gap_s = 0"),
        (
            f'name = "{HERE}"\n[streams]\nfilms = "{HERE}"\n[logs]\nprices = ["{THERE}"]\n',
            f'line 5: logs."prices" = .*: expected a stream that name = "{HERE}" owns: films',
        ),
        (
            f'name = "{HERE}"\n[streams]\nfilms = "{HERE}"\n[logs]\nfilms = ["there"]\n',
            'line 5: logs."films".0. = "there": expected "host:port"',
        ),
        (
            f'name = "{HERE}"\n[streams]\nfilms = "{HERE}"\n[logs]\nfilms = "{THERE}"\n',
            "line 4: logs = .*: expected a table of lists of names",
        ),
        (
            f'name = "{HERE}"\n[streams]\nfilms = "{HERE}"\n[logs]\nfilms = ["a.example:1"]\n',
            'line 5: logs."films".0. = .*beyond this machine',
        ),
    ],
)
def test_a_mistake_is_told_with_its_cure(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(tmp_path, text)


def test_plain_text_beyond_this_machine_has_to_be_asked_for(tmp_path: Path) -> None:
    text = 'name = "films.example:7500"\n[streams]\nfilms = "films.example:7500"\n'
    assert load(tmp_path, f"allow_plaintext = true\n{text}").allow_plaintext


def test_the_page_of_settings_is_what_the_code_gives() -> None:
    command = "python -m sirius.config.broadcast_reference > docs/broadcast-settings.md"
    assert page() == (ROOT / "docs" / "broadcast-settings.md").read_text("utf-8"), command


def test_every_setting_has_a_meaning() -> None:
    assert "|  |" not in page()
