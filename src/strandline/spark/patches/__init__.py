"""Hold every use of the internals of Spark, Hadoop and the JVM: the table is `table.py`, the switch `switch.py`."""
