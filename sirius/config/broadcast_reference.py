"""Writes `docs/broadcast-settings.md`: `python -m sirius.config.broadcast_reference > docs/broadcast-settings.md`."""

from __future__ import annotations

import sys
from typing import Final

from sirius.broadcast.config import ClientConfig
from sirius.config.broadcast import BroadcastConfig
from sirius.config.loading import sections_of
from sirius.config.reference import rows

_INTRO: Final = """\
# Settings of the broadcast layer

<!-- Made by `python -m sirius.config.broadcast_reference`. Change the dataclasses, not this page. -->

The file of a proxy, `sirius broadcast proxy --config FILE`, in TOML. [The broadcast layer](broadcast.md) shows one,
and [Proxies that survive](replicated-proxies.md) that of a replica.
Durations, sizes, paths and names are as in the [configuration](configuration.md) of a node, and mistakes are told all
at once, each with its line. Most proxies set `name`, `data`, `proxies`, `[streams]` and `[tls]`.
"""
_CLIENT: Final = """
## Clients

`connect(proxy, client=ClientConfig(…))`. Without one, a client has these values and takes its `region` from the proxy.
"""
_TITLES: Final = {
    "tls": "As for a node. A proxy is a `member`, an application a `client`.",
    "replica": "For a proxy that is a chain of replicas, see [Proxies that survive](replicated-proxies.md).",
    "neighbours": "How the replicas of a chain watch each other; the same at all of them.",
    "proxy": "How a proxy gets streams from others, and what it keeps.",
    "region": "How the members of a region talk to each other; the same at the proxy and at its clients.",
    "limits": "How large events and batches may be. The same at all proxies; clients are told.",
}


def page() -> str:
    """Return the whole page."""
    lines = [_INTRO, "## At the top of the file", "", *rows("", BroadcastConfig)]
    for name, settings in sections_of(BroadcastConfig).items():
        lines += ["", f"## [{name}]", "", _TITLES[name], "", *rows(name, settings)]
    return "\n".join([*lines, _CLIENT, *rows("", ClientConfig), ""])


if __name__ == "__main__":
    sys.stdout.write(page())
