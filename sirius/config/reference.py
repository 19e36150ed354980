"""Writes `docs/configuration.md`: `python -m sirius.config.reference > docs/configuration.md`.

Names, types, defaults and meanings come from the dataclasses; the meaning of a field is the text below it. A test says
when the page is not what the code gives.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from sirius.config.kinds import kinds_of
from sirius.config.loading import HIDDEN, sections
from sirius.config.settings import SiriusConfig

_INTRO: Final = """\
# Configuration

<!-- Made by `python -m sirius.config.reference`. Change the dataclasses, not this page. -->

```python
SiriusConfig()  # alone, durable, under ./sirius-data, no port
SiriusConfig(name="127.0.0.1:7400", members=["127.0.0.1:7400", "127.0.0.1:7401"], data="films")
SiriusConfig(durability="os", requests=RequestSettings(ack="decided"))
SiriusConfig.load("sirius.toml")
```

Everything has a default that is meant to be right; most nodes set `name`, `data`, `members` or `members_file`, and
`[tls]`. [example-sirius.toml](example-sirius.toml) is a file to begin with. The names are the same in Python and in
the file: what a node is stands at the top of the file, how its parts behave in tables.

- **Durations** are seconds, or text: `"250ms"`, `"5s"`, `"10min"`, `"1h"`, `"7d"`. Python takes seconds.
- **Sizes** are bytes, or text: `"64KiB"`, `"64MiB"` (times 1024), `"1GB"` (thousands). Python takes bytes.
- **Paths** in a file are relative to the file, and so is the default of `data`. In Python they are relative to where
  the process runs.
- **Names** of nodes are `"host:port"`. Case, a dot at the end of the host, and the many forms of an IPv6 address make
  no difference; `localhost` and `127.0.0.1` are two names.
- **Nothing else counts.** No environment variable changes a setting.
- **Mistakes** are told all at once, each with its line: `sirius.toml, line 7: there is no setting requests.timout_s;
  did you mean requests.timeout_s?`

## The member file

`members_file` names a file that lists who votes. It is looked at every `members_poll_s`, so members come and go
without a restart. A file that ends in `.toml` holds `members = ["films1.example:7400", …]`. Any other has one name a
line; `#` begins a comment. No names at all makes nodes passive: they keep what they have and neither vote nor lead.

The file says what is wished. Who votes stands in the log and is changed there, one voter at a time. A change of the
file counts once the file has been left alone for a second or was found the same twice. If it is bad or gone, the names
before stay in force, and the node's status shows the problem and since when it is there.
"""

_TITLES: Final = {
    "paxos": "The consensus machine. The defaults suit a local network.",
    "catchup": "How a node gets what it has missed, and how it serves others.",
}

MEANINGS: Final = {
    "paxos.batch_bytes_max": "How many bytes it carries at most, unless a single update has more.",
    "paxos.pipeline_bytes_max": "How many bytes these may have.",
    "paxos.intake_bytes_max": "How many bytes these may have.",
    "paxos.pending_bytes_max": "How many bytes these may have.",
    "paxos.reads_max": "How many linearizable reads may wait.",
    "paxos.sessions_max": "How many sessions are remembered, so that a request takes effect at most once.",
    "paxos.clock_drift_max": "By which part clocks may run faster or slower than they should.",
    "catchup.backoff_s_max": "How long that wait gets at most.",
    "catchup.window_slots_max": "How many slots are asked for at most.",
    "catchup.window_bytes_min": "How many bytes are asked for at first.",
    "catchup.window_bytes_max": "How many bytes are asked for at most.",
    "catchup.range_bytes_max": "The same in bytes.",
    "catchup.busy_retry_s": "When somebody who was turned away is to come back.",
    "catchup.cache_bytes_max": "The same in bytes.",
    "catchup.subscribers_max": "How many nodes a source pushes to.",
    "catchup.push_bytes_max": "The same in bytes.",
    "catchup.keepalive_s": "How often either end of a stream says that it is there.",
    "catchup.followers_max": "How many followers a node keeps deletes for.",
    "catchup.region_nodes_max": "How many nodes of its region a node keeps track of.",
}
"""What is said of settings that have no text of their own where they are defined."""


def page() -> str:
    """Return the whole page."""
    tables = [_table(name, settings) for name, settings in sections().items()]
    return "\n".join([_INTRO, "## At the top of the file", "", *rows("", SiriusConfig), *tables])


def _table(name: str, settings: type) -> str:
    title = _TITLES.get(name) or inspect.cleandoc(settings.__doc__ or "")
    return "\n".join(["", f"## [{name}]", "", title, "", *rows(name, settings)])


def rows(section: str, settings: type) -> Iterator[str]:
    """Return the lines of the table of a class of settings."""
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    meanings = texts_below_fields(settings)
    kinds = kinds_of(settings)
    for name, default in _defaults(settings).items():
        if name in kinds and (section, name) not in HIDDEN:
            meaning = meanings.get(name) or MEANINGS.get(f"{section}.{name}", "")
            shown = "unset" if default is None else f"`{kinds[name].show(default)}`"
            yield f"| `{name}` | {kinds[name].label} | {shown} | {meaning} |"


def _defaults(settings: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        made = field.default_factory
        found[field.name] = field.default if made is dataclasses.MISSING else made()
    return found


def texts_below_fields(settings: type) -> dict[str, str]:
    """Return the text that stands below each field of a class. Python itself forgets it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(settings))).body[0]
    found: dict[str, str] = {}
    statements = getattr(body, "body", [])
    for field, below in pairwise(statements):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                found[name] = " ".join(text.split()).replace("|", "\\|")
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
