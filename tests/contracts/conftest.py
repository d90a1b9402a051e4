"""The session that all tests of Spark share."""

from tests.spark.conftest import spark

__all__ = ["spark"]
