"""The columnar player: the model played over whole blocks of keys, with Polars and Arrow and without Spark."""
