"""Run Apache Kafka: a broker and its controller in one small JVM in KRaft mode, from jars that are fetched once.

The settings suit a single machine: no replicas, few internal partitions, no rebalance delay. Records are kept whatever
their timestamps, since tests replay old streams. Topics are not created automatically, so a typo creates none. After a
kill the controller waits for the session of the dead broker, so sessions are short.
"""

import os
import secrets
import shutil
import signal
import struct
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from strandline.errors import ServiceError, SetupError
from strandline.services.loopback import HOST, exchange
from strandline.services.service import Place, Say
from strandline.spark.launch.class_data_sharing import ClassArchive
from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.jars import Jar, fetch_jars, jars_folder, missing, pinned

PINS: Final = Path(__file__).with_name("kafka.toml")

FROM_SPARK: Final = (
    "scala-library-2.13",
    "scala-reflect-2.13",
    "jackson-annotations-2",
    "jackson-core-2",
    "jackson-databind-2",
    "jackson-dataformat-yaml-2",
    "snakeyaml-2",
    "slf4j-api-2",
    "log4j-api-2",
    "log4j-core-2",
    "log4j-slf4j2-impl-2",
    "lz4-java-1",
    "snappy-java-1",
    "zstd-jni-1",
)
"""Jars that the broker takes from Spark's wheel, by file name prefix."""

# A small heap, the C1 compiler and the serial collector start in half the time and use less memory.
_JVM: Final = (
    "-Xms64m",
    "-Xmx320m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)

_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={host}:{controller}
log.dirs={data}

auto.create.topics.enable=false
num.partitions=2
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500

log.retention.ms=-1
log.roll.ms=9223372036854775807
log.message.timestamp.after.max.ms=9223372036854775807

num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=8388608
"""

_LOGGING: Final = """\
status = error
shutdownHook = disable
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.settings.name = org.apache.kafka.common.config.AbstractConfig
logger.settings.level = warn
"""

_API_VERSIONS: Final = 18
_CORRELATION: Final = 4171


class Kafka:
    """The Kafka broker as a program of `strandline up`."""

    name: Final = "kafka"
    ports_needed: Final = 2
    stop_signal: Final = signal.SIGTERM

    @property
    def version(self) -> str:
        return next(jar.version for jar in broker_jars() if jar.artifact.startswith("kafka_"))

    def prepare(self, place: Place, say: Say) -> None:
        """Fetch the jars once, write the settings, and format a new data folder."""
        find_java()
        fetch_broker(say)
        settings = place.folder / "server.properties"
        settings.write_text(_settings(place), encoding="utf-8")
        (place.folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        if not (place.data / "meta.properties").exists():
            say("formatting the data folder")
            _format(settings, place)

    def account(self) -> list[str]:
        return []

    def command(self, place: Place) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={place.folder / 'log4j2.properties'}"
        return [*_java(leaves_archive=True), logging, "kafka.Kafka", str(place.folder / "server.properties")]

    def answers(self, place: Place) -> bool:
        """Send an ApiVersions request: a broker answers it to any client once it has joined its cluster and serves
        requests."""
        client = b"strandline"
        request = struct.pack(f">hhih{len(client)}s", _API_VERSIONS, 0, _CORRELATION, len(client), client)
        answer = exchange(place.port, struct.pack(">i", len(request)) + request, 10)
        return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (_CORRELATION, 0)

    def address(self, port: int) -> str:
        return f"{HOST}:{port}"

    def hint(self, text: str) -> str | None:
        if "Cluster ID" in text or "meta.properties" in text or "InconsistentClusterId" in text:
            return "the data folder belongs to another cluster: strandline down kafka --wipe deletes it"
        return None


def broker_jars() -> tuple[Jar, ...]:
    """Every package of the broker that Spark's wheel lacks."""
    return pinned(PINS)


def fetch_broker(say: Say) -> None:
    """Fetch missing jars into the folder of Spark's packages."""
    absent = missing(broker_jars())
    if absent:
        say(f"fetching {len(absent)} packages of Kafka, once")
        fetch_jars(say, jars=absent)


def class_path() -> str:
    """Kafka's own packages first, then those from Spark's wheel."""
    own = [jars_folder() / jar.file for jar in broker_jars()]
    return os.pathsep.join(str(path) for path in [*own, *_from_spark(_spark_jars())])


def _spark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("pyspark is not installed", hint="pip install strandline")
    return Path(spec.submodule_search_locations[0]) / "jars"


def _from_spark(folder: Path, names: Sequence[str] = FROM_SPARK) -> list[Path]:
    found = {name: sorted(folder.glob(f"{name}.*.jar")) for name in names}
    absent = [name for name, files in found.items() if not files]
    if absent:
        raise SetupError(
            f"Spark's wheel lacks {', '.join(absent)}",
            detail=f"in {folder}",
            hint="install the pyspark version that Strandline requires",
        )
    return [files[-1] for files in found.values()]


def _settings(place: Place) -> str:
    port, controller = place.ports
    return _SETTINGS.format(host=HOST, port=port, controller=controller, data=place.data)


def _java(*, leaves_archive: bool) -> list[str]:
    """The Java command with the broker's classes, from a class data archive where there is one."""
    java, jars = find_java(), class_path()
    archive = ClassArchive(jars_folder(), "kafka", java, jars)
    faster = archive.options_to_use() or (archive.options_to_create() if leaves_archive else [])
    return [str(java.path), *_JVM, *faster, "-cp", jars]


def _format(settings: Path, place: Place) -> None:
    # An interrupted run leaves a folder that is neither new nor formatted.
    shutil.rmtree(place.data, ignore_errors=True)
    cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "x")
    command = [*_java(leaves_archive=False), "kafka.tools.StorageTool", "format", "--standalone"]
    command += ["-t", cluster, "-c", str(settings)]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode != 0:
        last = (ran.stderr or ran.stdout).strip().splitlines()[-8:]
        raise ServiceError("Kafka could not format its data folder", detail="\n    ".join(last))
