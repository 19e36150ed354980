"""The columns that Spark sees.

======== ========= ==================================================================
column   type      what it is
======== ========= ==================================================================
seq      BIGINT    the sequence number
ts       TIMESTAMP when the update was given its number, in microseconds
op       STRING    `PUT` or `DELETE`; control entries never show
key      STRING
body     BINARY    the bytes of a PUT, also if they are none; NULL for a DELETE
segment  INT       the segment of the log that holds it
======== ========= ==================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sirius.errors import UsageError
from sirius.wal import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType, StructField, StructType

DDL: Final = {
    "seq": "BIGINT NOT NULL",
    "ts": "TIMESTAMP NOT NULL",
    "op": "STRING NOT NULL",
    "key": "STRING NOT NULL",
    "body": "BINARY",
    "segment": "INT NOT NULL",
}
OPS: Final = {Op.PUT: "PUT", Op.DELETE: "DELETE"}


def schema_of(columns: Sequence[str] = tuple(DDL)) -> StructType:
    """Return the schema of some columns, in the order given."""
    from pyspark.sql.types import StructType

    unknown = [name for name in columns if name not in DDL]
    if unknown:
        raise UsageError(f"there is no column {unknown[0]!r}; there are {', '.join(DDL)}")
    if not columns or len(set(columns)) < len(columns):
        raise UsageError(f"columns are named once each, and at least one: {', '.join(columns)!r}")
    return StructType([_field(name, *DDL[name].split(maxsplit=1)) for name in columns])


def _field(name: str, kind: str, constraint: str = "") -> StructField:
    """Return a column. Spark's own parser needs a session, which neither planning nor tasks have."""
    from pyspark.sql.types import (
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        TimestampType,
    )

    kinds: dict[str, DataType] = {
        "BIGINT": LongType(),
        "INT": IntegerType(),
        "TIMESTAMP": TimestampType(),
        "STRING": StringType(),
        "BINARY": BinaryType(),
    }
    return StructField(name, kinds[kind], nullable=constraint != "NOT NULL")


def check_read_schema(schema: StructType) -> None:
    """Refuse a schema given to `.schema(...)` with columns that a log has not; its order and choice are free."""
    known = {field.name: field.dataType for field in schema_of()}
    for field in schema:
        if field.name not in known:
            raise UsageError(f"there is no column {field.name!r}; there are {', '.join(known)}")
        _check_type(field.name, field.dataType, known[field.name])


def _check_type(name: str, given: DataType, wanted: DataType) -> None:
    if given != wanted:
        raise UsageError(
            f"column {name!r} is {wanted.simpleString().upper()}, not {given.simpleString().upper()}"
        )


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark wants batches of `schema` to have, to the letter."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
