"""In which order the loop hands things on to the apply thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sirius import Sirius
from sirius.engine import Engine
from sirius.types import Seq
from sirius.wal.block import encode
from sirius.wal.record import Op, Update
from tests.node.nodes import Dict, config


def test_what_came_as_files_comes_before_what_was_decided_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []

    def hand(blocks: Any, _answered: Any) -> None:
        handed.extend(int(block.first) for block in blocks)

    with Sirius(Dict(), config(tmp_path)) as sirius:
        driver = sirius._node.driver
        with monkeypatch.context() as patched:
            patched.setattr(driver.applier, "hand", hand)
            patched.setattr(driver.applier, "jump", lambda last: handed.append(f"up to {last}"))

            def happen(_engine: Engine) -> None:
                driver.decided(encode(7, [Update(Op.PUT, b"k", b"v")], 0))
                driver.installed(Seq(8), Seq(90))
                driver.decided(encode(91, [Update(Op.PUT, b"k", b"v")], 0))
                driver._received([])

            driver.call(happen).result(30)
            assert handed == [7, "up to 90", 91]
