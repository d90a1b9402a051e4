"""Arguments of wrong types and values."""

from datetime import datetime
from typing import Final

from tests.errors_zoo.animals import SCHEMA, SERVERS, Wrong, from_kafka, keyed, scores, sl, timed, totals
from tests.plan.endpoints import PaperSink

WORDS: Final[dict[str, Wrong]] = {
    "an accumulation that is none": Wrong(
        lambda: keyed().accumulate("nonsense"),
        "accumulate(…) cannot take 'nonsense' as how",
        "discarding, accumulating, retracting",
        "choose one of",
    ),
    "a delivery that is none": Wrong(
        lambda: totals().write(PaperSink(), delivery="exactly-once"),
        "cannot take 'exactly-once' as delivery",
        "at_most_once",
        "did you mean 'exactly_once'?",
    ),
    "a mode that is none": Wrong(
        lambda: sl.sqlite("a.db", mode="upsrt"),
        "cannot take 'upsrt' as mode",
        "append, upsert",
        "did you mean 'upsert'?",
    ),
    "a mode of a topic that is none": Wrong(
        lambda: sl.kafka_topic("t", servers=SERVERS, mode="compact"), "unknown mode 'compact'", "", "append, upsert"
    ),
    "an appended key": Wrong(
        lambda: sl.sqlite("a.db", mode="append", key=["team"]), "appended rows have no key", "", "upsert"
    ),
    "columns in a list": Wrong(
        lambda: timed().key_by(["team"]),
        "cannot take ['team'] as columns",
        "columns is a text",
        "give them one by one: key_by('team')",
    ),
    "a window as text": Wrong(
        lambda: timed().key_by("team").window("2m"), "cannot take '2m' as kind", "a window", "sl.tumbling"
    ),
    "a trigger as text": Wrong(
        lambda: keyed().trigger("2m"), "cannot take '2m' as trigger", "a trigger", "sl.after_count"
    ),
    "an early part as text": Wrong(
        lambda: sl.after_watermark(early="10s"), "cannot take '10s' as early", "a trigger", "sl.every"
    ),
    "a watermark as text": Wrong(
        lambda: scores().event_time("at", "10s"), "cannot take '10s' as watermark", "", "sl.bounded"
    ),
    "an aggregate as text": Wrong(lambda: keyed().aggregate(total="sum(score)"), "as total", "an aggregate", "sl.sum"),
    "an aggregate that was not called": Wrong(
        lambda: keyed().aggregate(n=sl.count), "the function count", "an aggregate", "call it: count(…)"
    ),
    "a sink as text": Wrong(
        lambda: totals().write("totals.db"), "cannot take 'totals.db' as sink", "a sink", "sl.sqlite"
    ),
    "a source as text": Wrong(lambda: sl.read("topic"), "cannot take 'topic' as source", "a source", "sl.kafka"),
    "a lateness as a number": Wrong(
        lambda: keyed().allow_lateness(5), "cannot take 5 as allowed", "a length of time", "10s"
    ),
    "a length that is none": Wrong(
        lambda: sl.tumbling("two minutes"), "'two minutes' is not a length of time", "", "90s"
    ),
    "a unit that is none": Wrong(lambda: sl.tumbling(minuets=5), "no such unit of time: minuets", "", "minutes"),
    "a length without end": Wrong(lambda: sl.tumbling(days=1e300), "not a length of time", "", "finite"),
    "no length": Wrong(sl.tumbling, "a length of time is missing", "", "minutes=2"),
    "two lengths": Wrong(lambda: sl.tumbling("5m", minutes=5), "given twice", "", "give it once"),
    "an argument that is missing": Wrong(
        lambda: sl.sliding("5m"), "missing a required argument: 'every'", "it takes size, every", "names.md"
    ),
    "an argument that there is not": Wrong(
        lambda: sl.sqlite("a.db", tabel="t"),
        "sqlite(…) has no argument 'tabel'",
        "path, table",
        "did you mean 'table'?",
    ),
    "a window of no length": Wrong(lambda: sl.tumbling("0s"), "a tumbling window's size is 0s", "", "above zero"),
    "a step that does not divide": Wrong(
        lambda: sl.cumulating("1h", step="7m"), "is not a whole number of steps", "", "divides the size"
    ),
    "a count of no elements": Wrong(lambda: sl.count_window(0), "size is 0", "", "at least one"),
    "a quantile above one": Wrong(lambda: sl.quantile("score", 95), "95 is not a quantile", "", "from 0 to 1"),
    "no servers": Wrong(
        lambda: sl.kafka("t", servers="", value=sl.json(SCHEMA)), "a server has no name", "", "localhost:9092"
    ),
    "servers as a number": Wrong(
        lambda: from_kafka(servers=9092), "cannot take 9092 as servers", "a text or a list of a text", "give"
    ),
    "a format as text": Wrong(lambda: from_kafka(value="json"), "cannot take 'json' as value", "a format", "sl.json"),
    "a start that is none": Wrong(
        lambda: sl.kafka("t", servers=SERVERS, value=sl.json(SCHEMA), starting="newest"),
        "cannot start at 'newest'",
        "",
        "earliest, latest",
    ),
    "a start without a zone": Wrong(
        lambda: sl.kafka("t", servers=SERVERS, value=sl.json(SCHEMA), starting=datetime(2024, 5, 1)),  # noqa: DTZ001
        "starting=2024-05-01T00:00:00 has no time zone",
        "another moment",
        "tzinfo=UTC",
    ),
    "an end without a zone": Wrong(
        lambda: sl.kafka("t", servers=SERVERS, value=sl.json(SCHEMA), until=datetime(2024, 5, 1)),  # noqa: DTZ001
        "until=2024-05-01T00:00:00 has no time zone",
        "another moment",
        "tzinfo=UTC",
    ),
    "metadata that is none": Wrong(
        lambda: sl.kafka("t", servers=SERVERS, value=sl.json(SCHEMA), metadata={"sent": "time"}),
        "unknown metadata field 'time'",
        "",
        "timestamp",
    ),
    "no topic": Wrong(from_kafka, "kafka needs one or more topics", "", "scores"),
    "topics in a list": Wrong(
        lambda: sl.kafka(["a", "b"], servers=SERVERS, value=sl.json(SCHEMA)),
        "cannot take ['a', 'b'] as topics",
        "a text",
        "kafka('a', 'b')",
    ),
    "a schema that cannot be read": Wrong(
        lambda: sl.json("team"), "cannot read the column 'team'", "", "a name and a type"
    ),
    "a type that is none": Wrong(lambda: sl.json("team strin"), "cannot read the column 'team strin'", "", "string"),
    "a type of Parquet columns that is none": Wrong(
        lambda: sl.files("in", "team strin"),
        "there is no type 'strin', which the column 'team' has",
        "",
        "did you mean 'string'?",
    ),
    "a time without a zone in JSON": Wrong(
        lambda: sl.json("team string, at timestamp_ntz"),
        "'at' cannot be read from JSON as timestamp_ntz",
        "in UTC",
        "declare it as at timestamp",
    ),
    "two columns of one name": Wrong(
        lambda: sl.csv("team string, team long"), "two columns are called 'team'", "", "different name"
    ),
    "an array in CSV": Wrong(lambda: sl.csv("teams array<string>"), "'teams' cannot be read from CSV", "", ""),
    "a delimiter of two signs": Wrong(
        lambda: sl.csv(SCHEMA, delimiter="||"), "'||' cannot be a delimiter", "", "one character"
    ),
    "a file format that is none": Wrong(
        lambda: sl.files("in", SCHEMA, format="json"), "unknown file format 'json'", "", "parquet, orc"
    ),
    "a folder format that is none": Wrong(
        lambda: sl.folder("out", format="json"), "files of format 'json'", "", "parquet"
    ),
    "a folder in an object store": Wrong(
        lambda: sl.folder("s3://out"), "folder is on this machine, and 's3://out' is a URL", "", "without a scheme"
    ),
    "a password as text": Wrong(
        lambda: sl.postgres("t", dsn="postgresql://localhost/a", password="hunter2"),
        "a secret is given by reference",
        "",
        "env:NAME",
    ),
    "a mask as text": Wrong(lambda: sl.dead_table(mask="card"), "the mask 'card' is a string", "", "a list"),
    "dead letters as text": Wrong(
        lambda: totals().write(PaperSink(), dead="dead/"),
        "cannot take 'dead/' as dead",
        "a sink of dead letters",
        "dead_files",
    ),
    "a share above one": Wrong(lambda: sl.failure_budget(10), "10 is no share", "", "from 0"),
}
