"""The table of translated errors: one text of each error as Spark, Java, Kafka's client or a worker writes it."""

import re
from pathlib import Path
from typing import Final

import pytest

import strandline
from strandline.errors import StrandlineError, hide_internal_columns
from strandline.spark.error_messages import TABLE, translate_error

WRAPPED: Final = """An error occurred while calling o265.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: {}
\t... 24 more"""

TEXTS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        (
            "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'bad' of the type "
            '"STRING" cannot '
            'be cast to "INT" because it is malformed. Correct the value as per the syntax, or change its target type. '
            "Use `try_cast` to tolerate malformed input and return NULL instead. SQLSTATE: 22018"
        ),
        "cannot cast the value 'bad', a STRING, to INT",
        "try_cast",
    ),
    (
        (
            "org.apache.spark.SparkArithmeticException: [CAST_OVERFLOW] The value 99999999999L of the type "
            '"BIGINT" cannot '
            'be cast to "INT" due to an overflow. Use `try_cast` to tolerate overflow and return NULL instead.'
        ),
        "cannot cast the value 99999999999L, a BIGINT, to INT: it is out of range",
        "wider type",
    ),
    (
        "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use …",
        "divides by zero",
        "nullif",
    ),
    (
        "org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow. Use 'try_add' to tolerate …",
        "a number in SQL of the pipeline is out of range",
        "try_add",
    ),
    (
        "[CANNOT_PARSE_TIMESTAMP] Text 'bad' could not be parsed at index 0. Use `try_to_timestamp` to tolerate …",
        "cannot read a time: Text 'bad' could not be parsed at index 0",
        "try_to_timestamp",
    ),
    (
        "[INVALID_ARRAY_INDEX] The index 9 is out of bounds. The array has 2 elements. Use the SQL function `get()` …",
        "reads element 9 of an array of 2",
        "get(array, index)",
    ),
    (
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `scor` cannot be "
            "resolved. Did you mean one of the following? [`score`, `at`, `@mark`, `@raw`, `team`]. SQLSTATE: 42703"
        ),
        "there is no column 'scor'",
        "check the name",
    ),
    (
        "[FIELD_NOT_FOUND] No such struct field `nam` in `name`, `age`. SQLSTATE: 42704; line 1 pos 0;",
        "a struct has no field 'nam'; it has `name`, `age`",
        "check the name",
    ),
    (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near '>'. SQLSTATE: 42601 (line 1, pos 9)",
        "there is an error at '>'",
        "Spark SQL",
    ),
    ("[PARSE_EMPTY_STATEMENT] Syntax error, unexpected empty statement.", "an SQL expression is empty", "score * 2"),
    (
        "[UNRESOLVED_ROUTINE] Cannot resolve routine `foo` on search path [`system`.`builtin`, `system`.`session`].",
        "Spark SQL has no function 'foo'",
        "map or flat_map",
    ),
    (
        "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] The `length` requires 1 parameters but the actual number is 2. Please …",
        "the SQL function 'length' takes 1 arguments, not 2",
        "list of functions",
    ),
    (
        '[UNSUPPORTED_DATATYPE] Unsupported data type "STRIN". SQLSTATE: 0A000',
        "there is no column type STRIN",
        "string, long",
    ),
    (
        (
            '[DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES] Cannot resolve "(score + array(1))" due to data type '
            "mismatch: the "
            'left and right operands of the binary operator have incompatible types ("STRING" and '
            '"ARRAY<INT>"). SQLSTATE'
        ),
        'do not fit: the left and right operands of the binary operator have incompatible types ("STRING" and "ARRAY',
        "cast",
    ),
    (
        "[AMBIGUOUS_REFERENCE] Reference `team` is ambiguous, could be: [`team`, `Team`]. SQLSTATE: 42704",
        "two columns are called 'team'",
        "rename",
    ),
    (
        "[PATH_NOT_FOUND] Path does not exist: /in. SQLSTATE: 42K03",
        "the folder /in does not exist",
        "create the folder",
    ),
    (
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host it",
        "a topic of the pipeline does not exist",
        "create the topic",
    ),
    (
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [scores]",
        "does not allow this user to read or write: Not authorized to access topics: [scores]",
        "grant",
    ),
    (
        "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: bad password",
        "Kafka refused the connection: Authentication failed",
        "sl.sasl",
    ),
    (
        "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
        "a host name cannot be resolved",
        "servers=",
    ),
    (
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. "
            "Call: describeTopics"
        ),
        "the Kafka broker does not answer",
        "servers=",
    ),
    (
        "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost because they are not available",
        "records of a topic were deleted before they were read",
        "on_lost",
    ),
    (
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. Make sure the provider name is correct",
        "a package of Java classes is missing",
        "strandline jars",
    ),
    ("java.lang.OutOfMemoryError: Java heap space", "out of memory: Java heap space", '{"spark.driver.memory": "4g"}'),
    (
        (
            "Total size of serialized results of 9 tasks (1025.0 MiB) is bigger than "
            "spark.driver.maxResultSize (1024.0 MiB)"
        ),
        "the output of one batch is larger than the driver accepts",
        "maxResultSize",
    ),
    ("java.io.IOException: No space left on device", "the disk is full", "free space"),
    ("java.nio.file.AccessDeniedException: /in/a.jsonl", "may not be read or written", "permissions"),
    ("ModuleNotFoundError: No module named 'geo'", "workers cannot import 'geo'", "install it"),
    (
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "a Python worker of Spark died",
        "out of memory",
    ),
    (
        "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main is too new",
        "the Java that runs is too old",
        "Java 17",
    ),
    (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
        "another job writes to the same checkpoint",
        "of its own",
    ),
)


@pytest.mark.parametrize(("text", "what", "hint"), TEXTS, ids=[what for _, what, _ in TEXTS])
def test_an_error_is_said_in_the_users_words_and_keeps_the_original(text: str, what: str, hint: str) -> None:
    original = RuntimeError(WRAPPED.format(text))
    found = translate_error(original)
    assert isinstance(found, StrandlineError)
    assert what in found.message
    assert hint in found.hint
    assert found.detail
    assert "@" not in str(found)
    assert found.__cause__ is original


def test_each_entry_of_the_table_has_a_text() -> None:
    used = {next(place for place, each in enumerate(TABLE) if each.pattern.search(text)) for text, _, _ in TEXTS}
    assert used == set(range(len(TABLE)))


def test_an_unknown_error_is_not_translated() -> None:
    assert translate_error("java.lang.IllegalStateException: something else") is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[`score`, `at`, `@mark`, `@raw`, `team`]", "[`score`, `at`, `team`]"),
        ("valid columns: [@partition, @offset, team, @at]", "valid columns: [team]"),
        ('unable to find column "@at"', "unable to find column an internal column"),
        ("(NOT (@mark#121 = 0) OR isnull(x))", "(NOT (an internal column = 0) OR isnull(x))"),
        ("postgresql://me@localhost/scores", "postgresql://me@localhost/scores"),
        ("The value '@home' of the type \"STRING\"", "The value '@home' of the type \"STRING\""),
        ("mail to a.b@example.org, please", "mail to a.b@example.org, please"),
    ],
)
def test_internal_columns_are_hidden_from_foreign_texts(text: str, shown: str) -> None:
    assert hide_internal_columns(text) == shown


def test_every_internal_column_is_hidden() -> None:
    package = Path(strandline.__file__).parent
    names = {name for path in package.rglob("*.py") for name in re.findall(r'"(@[a-z_]{3,})"', path.read_text())}
    assert len(names) > 50
    assert {name for name in names if "@" in hide_internal_columns(f"[team, {name}]")} == set()
