"""Start Spark: find Java, fetch jars, launch the JVM, fork Python workers."""
