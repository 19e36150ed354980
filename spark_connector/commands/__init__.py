"""Commands that only Spark has; `spark_connector.cli` lists them, and imports one when it is called."""
