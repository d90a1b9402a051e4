"""Define Kafka topics as sinks: the `kafka_topic` function and its checks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.connectors.kafka.dead_letters import DeadTopic, TopicLetters
from strandline.connectors.kafka.encode_rows import Format
from strandline.connectors.kafka.security import Security, server_list
from strandline.connectors.kafka.sink import OpenKafka, Place
from strandline.connectors.kafka.topic_admin import Topics
from strandline.errors import InvalidStep
from strandline.model.arguments import checked
from strandline.model.suggestions import did_you_mean
from strandline.plan.endpoints import Ledgered, UpsertKey
from strandline.plan.stages import Deliver

_MODES: Final = ("append", "upsert")
_OPTIONS: Final = ("acks", "batch.size", "client.id", "compression.type", "linger.ms", "transaction.timeout.ms")


@dataclass(frozen=True, slots=True)
class KafkaTopic(Ledgered):
    """A Kafka topic as a sink."""

    place: Place

    @property
    def name(self) -> str:
        return f"kafka_topic({self.place.topics.rows!r})"

    @property
    def definition(self) -> dict[str, Any]:
        """The fields that make it the same sink to a checkpoint; connection settings are left out."""
        place, topics = self.place, self.place.topics
        names = {"topic": topics.rows, "late": topics.late, "dead": topics.dead, "ledger": topics.ledger}
        return {**names, "by_key": place.by_key, "key": place.key, "value": place.value}

    @property
    def needed_columns(self) -> tuple[str, ...]:
        key, value = self.place.key, self.place.value
        keys = key.columns if isinstance(key, Format) else key or ()
        return (*keys, *(() if value is None else value.columns))

    @property
    def upsert_key(self) -> UpsertKey | None:
        key = self.place.key.columns if isinstance(self.place.key, Format) else self.place.key
        return UpsertKey(key or (), compares_windows=False) if self.place.by_key else None

    def open(self, output: Deliver) -> OpenKafka:
        return OpenKafka(self.place, output, self.name)

    def letters(self) -> TopicLetters:
        """Open the dead letters beside the rows."""
        return TopicLetters(DeadTopic(self.place.topics.dead, self.place.servers, security=self.place.security))


@checked
def kafka_topic(  # noqa: PLR0913 - one choice each
    topic: str,
    *,
    servers: str | Sequence[str],
    value: Format | None = None,
    key: Iterable[str] | Format | None = None,
    mode: str = "append",
    late: str | None = None,
    dead: str | None = None,
    ledger: str | None = None,
    security: Security | None = None,
    options: Mapping[str, str] | None = None,
) -> KafkaTopic:
    """Write panes to a topic, one transaction per batch: `write(kafka_topic("totals", servers="localhost:9092"))`.

    Values are JSON with every column, or encoded by a format: `value=avro(…, registry=…)`. Keys are JSON of the panes'
    keys, of other columns, `key=["team"]`, or encoded by a format: `key=text("team")`. `mode="upsert"` is for a
    compacted topic: it writes a record for each key and window, the newest counts, and a tombstone retracts it. Late
    elements and dead letters go to `<topic>.late` and `<topic>.dead`, the ledger to `<topic>.ledger`.
    """
    if not topic:
        raise InvalidStep("the topic has no name", hint='write kafka_topic("totals", …)')
    if mode not in _MODES:
        raise InvalidStep(
            f"unknown mode {mode!r}", hint=did_you_mean(mode, _MODES, f"choose one of {', '.join(_MODES)}")
        )
    chosen = key if key is None or isinstance(key, Format) else (key,) if isinstance(key, str) else tuple(key)
    if chosen == ():
        raise InvalidStep("the key has no columns", hint="name at least one column, or leave key out")
    topics = Topics(topic, late or f"{topic}.late", dead or f"{topic}.dead", ledger or f"{topic}.ledger")
    if len({topic, *topics.beside}) < 1 + len((topics.late, topics.dead, topics.ledger)):
        raise InvalidStep(
            "two of the sink's topics have the same name", hint="give rows, late, dead and ledger different topics"
        )
    place = Place(
        server_list(servers), topics, mode == "upsert", chosen, value, security or Security(), _checked(options or {})
    )
    return KafkaTopic(place)


def _checked(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in options.items():
        if name not in _OPTIONS:
            raise InvalidStep(f"{name} is not an option of this sink", hint=f"choose from {', '.join(_OPTIONS)}")
        if name == "acks" and str(value) not in ("all", "-1"):
            raise InvalidStep(
                f"acks={value} would count a record as written that a broker may still lose", hint="leave acks at all"
            )
    return tuple(sorted((name, str(value)) for name, value in options.items()))
