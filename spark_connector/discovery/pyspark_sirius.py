"""Spark imports every module whose name begins with `pyspark_` and takes its `DefaultSource`: so `format("sirius")`
needs no registration. The wheel puts this file at the top, where Spark looks; it stays light, since it is always
imported."""

from spark_connector.source import SiriusDataSource as DefaultSource

__all__ = ["DefaultSource"]
