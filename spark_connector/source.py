"""The data source `sirius`: what Spark asks for, and which part of the connector answers.

Spark makes this object on the driver for each load or save, through `pyspark_sirius`. Everything heavy is imported by
the method that needs it: Spark imports this module in every session, whether the source is used or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_connector.memory import spare_collections
from spark_connector.options import Options, Use
from spark_connector.schema import check_read_schema, schema_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class SiriusDataSource(DataSource):
    """A log on disk, or that of a node, as a table of updates; see `spark_connector.options` for what can be asked."""

    @classmethod
    def name(cls) -> str:
        return "sirius"

    def schema(self) -> StructType:
        options = Options.of(self.options)
        if options.paths:
            from spark_connector.reading import check_paths

            # Here, so that `load` fails and not the first query.
            check_paths(options.paths)
        spare_collections()
        return schema_of(options.columns or tuple(schema_of().names))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_connector.reading import reader_of

        check_read_schema(schema)
        return reader_of(Options.of(self.options, Use.READ), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_connector.writing import writer_of

        return writer_of(self._to_write(), schema, overwrite=overwrite)

    def _to_write(self) -> Options:
        """Return the options of a write: an endpoint makes it another thing."""
        return Options.of(self.options, Use.PUBLISH if "endpoint" in self.options else Use.WRITE)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from spark_connector.streaming import stream_reader_of

        check_read_schema(schema)
        return stream_reader_of(Options.of(self.options, Use.STREAM), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from spark_connector.writing import stream_writer_of

        options = self._to_write()
        checkpoint = self.options.get("checkpointlocation")
        return stream_writer_of(options, schema, overwrite=overwrite, checkpoint=checkpoint)
