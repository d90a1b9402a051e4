"""What a batch ends with when a stop interrupts it: an error that Spark knows at once.

Spark tells a stop from a failure by a pattern, which it looks for in the whole text of an error that comes from Python.
Of a text as long as that of an interrupted job it makes a StackOverflowError, and a thousand lines in the log.
"""


class Interrupted(Exception):
    """Printed as what Spark looks for, and nothing else."""

    def __init__(self) -> None:
        super().__init__("An error occurred while calling a batch.\n: java.lang.InterruptedException: stopped")


Interrupted.__module__, Interrupted.__qualname__ = "py4j.protocol", "Py4JJavaError"
