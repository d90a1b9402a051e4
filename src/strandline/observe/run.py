"""Run a pipeline on Spark with an observer that records its numbers."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from strandline.errors import RunError, SetupError
from strandline.model.arguments import checked
from strandline.observe.alarms.alarm_file import Alarms, read_alarms
from strandline.observe.alarms.watch import AlarmWatcher
from strandline.observe.export.json_lines import Lines
from strandline.observe.export.otlp import Telemetry, require_otlp
from strandline.observe.known_jobs import is_temporary, remember
from strandline.observe.metrics.observer import MetricsExporter, Recorder
from strandline.observe.metrics.store import Retention
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root
from strandline.redaction import logger
from strandline.spark.job import Job
from strandline.spark.launch.preflight import local_folder
from strandline.spark.run import run as run_on_spark

_log: Final = logger("strandline")


@checked
def run(  # noqa: PLR0913 - options of a job, each with its default
    root: Root,
    spark: Any = None,
    *,
    checkpoint: str | Path,
    name: str = "",
    metrics: bool = True,
    metrics_port: int | None = None,
    metrics_log: str | Path | None = None,
    metrics_otlp: str | None = None,
    pane_log: int = Retention().panes,
    alarms: Alarms | str | Path | None = None,
    **options: Any,
) -> Job:
    """Start a pipeline and store its numbers beside the checkpoint, unless `metrics=False`.

    The job is then listed among the jobs of this machine, unless its folder is a temporary one. `name` is the displayed
    name of the job, by default its folder's name. `metrics_port` serves Prometheus on this machine, at a free port if
    it is 0. `metrics_log` is a file that gets a line of JSON for each batch. `metrics_otlp` is the address of an
    OpenTelemetry collector, `http://localhost:4318`. `pane_log` is how many panes are kept for the pane explorer; 0
    keeps none. `alarms` is a file of rules and notifiers; without one the default rules write to the log. All other
    options are those of `spark/run.py`.
    """
    folder = local_folder(checkpoint)
    if not is_temporary(folder):
        remember(folder)
    if not metrics:
        return run_on_spark(root, spark, checkpoint=folder, **options)
    if metrics_port is not None and find_spec("prometheus_client") is None:
        raise SetupError("the Prometheus client is not installed", hint='pip install "strandline[dashboard]"')
    if metrics_otlp is not None:
        require_otlp(metrics_otlp)
    called = name or folder.name
    rules = alarms if isinstance(alarms, Alarms) else Alarms() if alarms is None else read_alarms(Path(alarms))
    keys = {output.number: output.keys or () for output in to_stages(root).outputs}
    recorder = Recorder(
        folder, called, keys, retention=Retention(panes=pane_log), alarm_watcher=AlarmWatcher(folder, called, rules),
        exporters=lambda: _exporters(metrics_port, metrics_log, metrics_otlp),
    )  # fmt: skip
    try:
        return run_on_spark(root, spark, checkpoint=folder, observer=recorder, **options)
    except RunError as problem:
        if (folder / "strandline.json").exists():
            recorder.failed(str(problem))
        raise


def _exporters(port: int | None, log: str | Path | None, otlp: str | None) -> list[MetricsExporter]:
    found: list[MetricsExporter] = []
    if log is not None:
        try:
            found.append(Lines(Path(log)))
        except OSError as problem:
            _log.warning("numbers are not written to %s: %s", log, problem.strerror)
    if port is not None:
        try:
            from strandline.observe.export.prometheus import Exporter  # noqa: PLC0415 - its client is an optional extra

            found.append(Exporter(port))
        except OSError as problem:
            _log.warning("numbers are not served on port %s: %s", port, problem.strerror)
    if otlp is not None:
        found.append(Telemetry(otlp))
    return found
