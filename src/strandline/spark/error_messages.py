"""Translate errors of Spark, Java, Kafka's client and Python workers: what happened, and what to do.

The table holds the commonest ones. The first entry whose pattern is found wins, so that causes come before the errors
that wrap them. The original error stays the cause, which `--debug` prints.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.logger import PySparkLogger

from strandline.errors import InvalidStep, RunError, SetupError, StrandlineError, hide_internal_columns
from strandline.model.suggestions import did_you_mean

_LONGEST: Final = 300
_CONTEXT_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True, slots=True)
class Translation:
    """A pattern in the text of an error, the error to raise, and what to do. Groups are used as {0}, {1}, …"""

    pattern: re.Pattern[str]
    kind: type[StrandlineError]
    message: str
    hint: str


def _entry(pattern: str, kind: type[StrandlineError], message: str, hint: str) -> Translation:
    return Translation(re.compile(pattern, re.DOTALL), kind, message, hint)


TABLE: Final[tuple[Translation, ...]] = (
    _entry(
        r"\[CAST_INVALID_INPUT\] The value (.{1,200}?) of the type \"(\w+)\" cannot be cast to \"([^\"]+)\"",
        RunError,
        "SQL of the pipeline cannot cast the value {0}, a {1}, to {2}",
        "use try_cast(… as {2}), which gives null for such a value, and keep or drop null with where",
    ),
    _entry(
        r"\[CAST_OVERFLOW[^\]]*\] The value (.{1,200}?) of the type \"(\w+)\" cannot be cast to \"([^\"]+)\"",
        RunError,
        "SQL of the pipeline cannot cast the value {0}, a {1}, to {2}: it is out of range",
        "cast to a wider type, or use try_cast",
    ),
    _entry(
        r"\[DIVIDE_BY_ZERO\]",
        RunError,
        "SQL of the pipeline divides by zero",
        "use try_divide(a, b), or a / nullif(b, 0), which give null",
    ),
    _entry(
        r"\[(?:ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE)[^\]]*\] ([^.\n]{1,160})",
        RunError,
        "a number in SQL of the pipeline is out of range",
        "cast to a wider type first, or use try_add, try_subtract or try_multiply",
    ),
    _entry(
        r"\[(?:CANNOT_PARSE_TIMESTAMP|CANNOT_PARSE_TIME)[^\]]*\] ([^\n]{1,160}?)\. (?:Use|SQLSTATE|If)",
        RunError,
        "SQL of the pipeline cannot read a time: {0}",
        "use try_to_timestamp, which gives null, or correct the format",
    ),
    _entry(
        r"\[INVALID_ARRAY_INDEX[^\]]*\] The index (-?\d+) is out of bounds. The array has (\d+) elements",
        RunError,
        "SQL of the pipeline reads element {0} of an array of {1}",
        "use get(array, index) or try_element_at, which give null",
    ),
    _entry(
        r"\[UNRESOLVED_COLUMN[^\]]*\] A column, variable, or function parameter with name `([^\n]+?)` cannot",
        InvalidStep,
        "there is no column {0!r}",
        "check the name",
    ),
    _entry(
        r"\[FIELD_NOT_FOUND\] No such struct field `([^`]+)` in ([^\n]+?)\. SQLSTATE",
        InvalidStep,
        "a struct has no field {0!r}; it has {1}",
        "check the name",
    ),
    _entry(
        r"\[PARSE_SYNTAX_ERROR\] Syntax error at or near ([^\n]{1,80}?)(?:: [^\n]*)?\. SQLSTATE",
        InvalidStep,
        "SQL cannot be read: there is an error at {0}",
        "write an expression of Spark SQL, as in \"score * 2\"",
    ),
    _entry(
        r"\[PARSE_EMPTY_STATEMENT\]",
        InvalidStep,
        "an SQL expression is empty",
        "write an expression of Spark SQL, as in \"score * 2\"",
    ),
    _entry(
        r"\[UNRESOLVED_ROUTINE\] Cannot resolve routine `([^\n]+?)` on",
        InvalidStep,
        "Spark SQL has no function {0!r}",
        "check the name; functions of Python go into map or flat_map",
    ),
    _entry(
        r"\[WRONG_NUM_ARGS[^\]]*\] The `([^`]+)` requires ([^\n]+?) parameters but the actual number is (\d+)",
        InvalidStep,
        "the SQL function {0!r} takes {1} arguments, not {2}",
        "compare the call with Spark's list of functions",
    ),
    _entry(
        r"\[(?:UNSUPPORTED_DATATYPE|PARSE_DATATYPE)[^\]]*\] Unsupported data type \"?([^\"\n]+?)\"?\. SQLSTATE",
        InvalidStep,
        "there is no column type {0}",
        "write a type such as string, long, double, boolean or timestamp",
    ),
    _entry(
        r"\[DATATYPE_MISMATCH[^\]]*\] Cannot resolve \"([^\n]*?)\" due to data type mismatch: ([^\n]*?)\. SQLSTATE",
        InvalidStep,
        "the types in an SQL expression do not fit: {1}",
        "cast one of them: cast(column as type)",
    ),
    _entry(
        r"\[AMBIGUOUS_REFERENCE\] Reference `([^`]+)` is ambiguous",
        InvalidStep,
        "two columns are called {0!r}, up to the case of their letters",
        "rename one of them before this step",
    ),
    _entry(
        r"\[PATH_NOT_FOUND\] Path does not exist: (\S+?)\. SQLSTATE",
        SetupError,
        "the folder {0} does not exist",
        "check the path, or create the folder; it may be empty",
    ),
    _entry(
        r"(?:UnknownTopicOrPartitionException|Topic (\S+) not present in metadata)",
        RunError,
        "a topic of the pipeline does not exist on the broker",
        "check the name in kafka(…), or create the topic",
    ),
    _entry(
        r"(?:TopicAuthorizationException|GroupAuthorizationException): ([^\n]{1,160})",
        RunError,
        "Kafka does not allow this user to read or write: {0}",
        "grant the user access to the topic and to the group",
    ),
    _entry(
        r"(?:SaslAuthenticationException|SslAuthenticationException): ([^\n]{1,160})",
        RunError,
        "Kafka refused the connection: {0}",
        "check security=sl.sasl(…) or sl.tls(…): mechanism, user, password and certificates",
    ),
    _entry(
        r"(?:No resolvable bootstrap urls|UnknownHostException: ([\w.-]+))",
        RunError,
        "a host name cannot be resolved",
        "check servers= and the name service of this machine",
    ),
    _entry(
        r"TimeoutException: [^\n]*?(?:node assignment|listNodes|describeTopics|fetch topic metadata|listOffsets)",
        RunError,
        "the Kafka broker does not answer",
        "check servers=, and that the broker runs and can be reached from this machine",
    ),
    _entry(
        r"\[(?:KAFKA_DATA_LOSS|KAFKA_START_OFFSET)[^\]]*\]|Some data may have been lost because they are not available",
        RunError,
        "records of a topic were deleted before they were read",
        "kafka(…, on_lost='continue') skips them; otherwise restore the topic",
    ),
    _entry(
        r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: (\w+)|ClassNotFoundException: (org\.\S+)",
        SetupError,
        "a package of Java classes is missing in this Spark session",
        "strandline jars lists the packages; a session that Strandline starts has them",
    ),
    _entry(
        r"OutOfMemoryError: ([^\n]{1,80})",
        RunError,
        "the Java process is out of memory: {0}",
        'read less in a batch (records_per_batch=), or run with settings={{"spark.driver.memory": "4g"}}',
    ),
    _entry(
        r"spark\.driver\.maxResultSize",
        RunError,
        "the output of one batch is larger than the driver accepts",
        'read less in a batch, or run with settings={{"spark.driver.maxResultSize": "4g"}}',
    ),
    _entry(
        r"No space left on device",
        RunError,
        "the disk is full",
        "free space for the job's folder and for temporary files; the next run goes on",
    ),
    _entry(
        r"(?:AccessControlException|AccessDeniedException|Permission denied)[^\n]{0,160}",
        RunError,
        "a file or folder may not be read or written by this user",
        "check its owner and its permissions",
    ),
    _entry(
        r"ModuleNotFoundError: No module named '([\w.]+)'",
        RunError,
        "Spark's Python workers cannot import {0!r}",
        "install it where the workers run, or ship it with spark.submit.pyFiles",
    ),
    _entry(
        r"Python worker (?:exited unexpectedly|failed to connect back|was killed)",
        RunError,
        "a Python worker of Spark died",
        "it may have been out of memory: read less in a batch, and see the end of spark.log",
    ),
    _entry(
        r"UnsupportedClassVersionError",
        SetupError,
        "the Java that runs is too old for this Spark",
        "install Java 17 or later; strandline doctor shows which one is found",
    ),
    _entry(
        r"\[CONCURRENT_STREAM_LOG_UPDATE\]|Multiple streaming queries are concurrently using",
        RunError,
        "another job writes to the same checkpoint",
        "stop it, or give this job a checkpoint of its own",
    ),
)  # fmt: skip


@contextmanager
def without_query_context_logs() -> Iterator[None]:
    """Keep PySpark from printing an error, with its plan and internal columns, that is translated here."""
    loggers = [PySparkLogger.getLogger(name) for name in _CONTEXT_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def silence_query_context_logs() -> None:
    """Do the same for the whole process. Called for a session that Strandline starts."""
    for name in _CONTEXT_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def translate_error(problem: BaseException | str) -> StrandlineError | None:
    """Return an error in the user's words, with the original as its cause; None if it is not in the table."""
    text = str(problem)
    for entry in TABLE:
        found = entry.pattern.search(text)
        if found is None:
            continue
        groups = [hide_internal_columns(each or "").strip() for each in found.groups()]
        detail = hide_internal_columns(innermost(text))[:_LONGEST]
        translated = entry.kind(
            hide_internal_columns(entry.message.format(*groups)), detail=detail, hint=entry.hint.format(*groups)
        )
        if isinstance(problem, BaseException):
            translated.__cause__ = problem
        return translated
    return None


def unresolved(problem: BaseException, sql: str, known: list[str]) -> StrandlineError | None:
    """Return the error of an SQL expression with the expression and the nearest column."""
    translated = translate_error(problem)
    if translated is None:
        return None
    missing = re.search(r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`([^\n]+?)` cannot", str(problem))
    names = [name for name in known if not name.startswith("@")]
    hint = translated.hint if missing is None else did_you_mean(missing[1].strip("`"), names)
    shown = f"in «{sql}»" if missing is None else f"«{sql}» reads it; there are {', '.join(names)}"
    found = type(translated)(translated.message, detail=shown, hint=hint)
    found.__cause__ = problem
    return found


def innermost(text: str) -> str:
    """Return the innermost error of Python or Java, from a text of nested stack traces."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if re.match(r"[\w.]+(?:Error|Exception|Mismatch|Block): .*[^:]$", line) and "py4j" not in line
    ]
    java = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return next(iter([*python[-1:], *java[-1:], *lines[:1]]), "no reason given")
