"""Runs a pipeline with its numbers kept: Spark's run, with an observer beside it."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from strandline.errors import RunError, SetupError
from strandline.observe.alarms.alarm_file import Alarms, read_alarms
from strandline.observe.alarms.watch import Watchman
from strandline.observe.export.json_lines import Lines
from strandline.observe.export.otlp import Telemetry, require_otlp
from strandline.observe.known_jobs import is_passing, remember
from strandline.observe.metrics.observer import Recorder, Teller
from strandline.observe.metrics.store import Keeping
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root
from strandline.spark.job import Job
from strandline.spark.launch.preflight import local_folder
from strandline.spark.run import run as run_on_spark

_log: Final = logging.getLogger("strandline")


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
    pane_log: int = Keeping().panes,
    alarms: Alarms | str | Path | None = None,
    **options: Any,
) -> Job:
    """Starts a pipeline and keeps its numbers beside the checkpoint, unless `metrics=False`.

    From then on it is among the jobs of this machine, unless its folder is a temporary one.
    `name` is how the job is called where it is looked at, else as its folder. `metrics_port` serves Prometheus on this
    machine, at a free port if it is 0; `metrics_log` is a file that gets a line of JSON for each batch;
    `metrics_otlp` is the address of a collector of OpenTelemetry, `http://localhost:4318`. `pane_log` is how many panes
    are kept for the pane explorer; 0 keeps none. `alarms` is a file of rules, and of whom to tell; without one the
    usual rules write to the log. All other options are Spark's: see `spark/run.py`.
    """
    folder = local_folder(checkpoint)
    if not is_passing(folder):
        remember(folder)
    if not metrics:
        return run_on_spark(root, spark, checkpoint=folder, **options)
    if metrics_port is not None and find_spec("prometheus_client") is None:
        raise SetupError("the client of Prometheus is not installed", hint='pip install "strandline[dashboard]"')
    if metrics_otlp is not None:
        require_otlp(metrics_otlp)
    called = name or folder.name
    rules = alarms if isinstance(alarms, Alarms) else Alarms() if alarms is None else read_alarms(Path(alarms))
    keys = {output.number: output.keys or () for output in to_stages(root).outputs}
    recorder = Recorder(
        folder, called, keys, keeping=Keeping(panes=pane_log), watchman=Watchman(folder, called, rules),
        tellers=lambda: _tellers(metrics_port, metrics_log, metrics_otlp),
    )  # fmt: skip
    try:
        return run_on_spark(root, spark, checkpoint=folder, observer=recorder, **options)
    except RunError as problem:
        if (folder / "strandline.json").exists():
            recorder.failed(str(problem))
        raise


def _tellers(port: int | None, log: str | Path | None, otlp: str | None) -> list[Teller]:
    found: list[Teller] = []
    if log is not None:
        try:
            found.append(Lines(Path(log)))
        except OSError as problem:
            _log.warning("numbers are not written to %s: %s", log, problem.strerror)
    if port is not None:
        try:
            from strandline.observe.export.prometheus import Exporter  # noqa: PLC0415 - its client is an extra

            found.append(Exporter(port))
        except OSError as problem:
            _log.warning("numbers are not served on port %s: %s", port, problem.strerror)
    if otlp is not None:
        found.append(Telemetry(otlp))
    return found
