"""The log as Spark DataFrames: the data source `sirius`, in batch and streaming, both ways, and bulk work on logs.

>>> from spark_connector import session
>>> spark = session()
>>> spark.read.format("sirius").load("films/").where("key LIKE 'title/%'").show()

It reads logs through `sirius.wal`, talks to clusters through `sirius.transport`, and never starts a node.
"""

from spark_connector.java import NoJava, find_java
from spark_connector.session import session

__all__ = ["NoJava", "find_java", "session"]
