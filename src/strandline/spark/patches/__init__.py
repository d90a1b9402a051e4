"""Every change to the internals of Spark, Hadoop or the JVM."""
