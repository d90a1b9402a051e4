"""The demo over a real broker: stopped by Ctrl-C, gone on with, and counted again from the topic itself."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.main import main
from strandline.services.catalogue import service
from strandline.services.service import Standing

pytestmark = [pytest.mark.spark, pytest.mark.services]

EVENTS = 2_000


def demo(folder: Path) -> int:
    words = ("demo", "--kafka", "--plain", "--events", str(EVENTS), "--rate", "400", "--folder", str(folder))
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def read_by(folder: Path) -> int:
    return sum(Checkpoint(folder / "checkpoint").latest_offsets().get("scores", {}).values())


def interrupt_once_it_reads(folder: Path) -> None:
    give_up = time.monotonic() + 60
    while read_by(folder) == 0 and time.monotonic() < give_up:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def test_the_demo_over_kafka_is_stopped_by_ctrl_c_goes_on_and_agrees_with_the_topic(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    threading.Thread(target=interrupt_once_it_reads, args=[folder], daemon=True).start()
    assert demo(folder) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Stopped. Run the same command again")
    assert service("kafka", folder).status().standing is Standing.STOPPED
    assert read_by(folder) > 0
    assert demo(folder) == 0
    told = capsys.readouterr().out
    assert " cells of team and window agree; " in told
    assert "strandline up kafka --home" in told
    assert read_by(folder) == EVENTS
    assert service("kafka", folder).status().standing is Standing.STOPPED
    assert json.loads((folder / "run.json").read_text())["complete"] is True
