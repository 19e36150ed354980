"""How a node is set up: `SiriusConfig`, its TOML file, and the member file."""

from sirius.config.members import Members, MembersFile, read_members, write_members
from sirius.config.settings import (
    CompactionSettings,
    HandlerSettings,
    LogSettings,
    RequestSettings,
    SiriusConfig,
    TlsSettings,
)

__all__ = [
    "CompactionSettings",
    "HandlerSettings",
    "LogSettings",
    "Members",
    "MembersFile",
    "RequestSettings",
    "SiriusConfig",
    "TlsSettings",
    "read_members",
    "write_members",
]
