"""The logs of Comcast's Sirius 2.5 (Scala), which many of our users have today.

All integers are big-endian and signed. An entry of a data file::

    0       4            12        20          28       32        36         40
    ┌───────┬────────────┬─────────┬───────────┬────────┬─────────┬──────────┬─────┬──────┐
    │ len   │ checksum   │ seq     │ ts_ms     │ op     │ key_len │ body_len │ key │ body │
    │ i32   │ i64        │ i64     │ i64       │ i32    │ i32     │ i32      │     │      │
    └───────┴────────────┴─────────┴───────────┴────────┴─────────┴──────────┴─────┴──────┘
                         └── len counts this, the checksum (FNV-1a, 64 bits) covers it ───┘

    op       1 PUT, 2 DELETE (whose body is empty)
    len      28 + key_len + body_len
    key      UTF-8, unless the ancestor ran with another default charset; not checked here

An entry of an index file, one for each entry of the data file, in the same order::

    0            8         16          24
    ┌────────────┬─────────┬───────────┐
    │ checksum   │ seq     │ offset    │   offset: where the data entry begins
    │ i64        │ i64     │ i64       │
    └────────────┴─────────┴───────────┘
    The checksum (FNV-1a, 64 bits) covers all 24 bytes, with zeros in its own place.

Two layouts of a folder::

    segmented                            legacy
    SEGMENTED-1.0          empty         1.data
    1/data  1/index                      1.index
    1/keys-collected       empty flag
    1/internally-compacted empty flag
    2/data  2/index  …

The numbers of segments have gaps where two were merged, sequence numbers where entries were
compacted away; both only ever grow. The ancestor begins a segment as soon as the one before is
full, so the last segment of a log may well be empty.

What a crash leaves behind. `N.compacting` and `M-N.merged` are copies that were being made: they
are not read. `N.temp` is the original of a segment while its copy takes its place: it is not read
either, unless the crash came just then and there is no `N`: then `N.temp` *is* the segment.

The ancestor never syncs, so its last data file may end within an entry. That is a *torn tail*: the
first bytes of an entry, or nothing but zeros, with no entry after them. Everything else that does
not check out is damage.
"""

from sirius.wal.ancestor.format import (
    DELETE,
    FLAGS,
    MARKER,
    PUT,
    AncestorColumns,
    AncestorSegment,
    Layout,
    detect,
)
from sirius.wal.ancestor.reader import AncestorReader
from sirius.wal.ancestor.writer import AncestorWriter

__all__ = [
    "DELETE",
    "FLAGS",
    "MARKER",
    "PUT",
    "AncestorColumns",
    "AncestorReader",
    "AncestorSegment",
    "AncestorWriter",
    "Layout",
    "detect",
]
