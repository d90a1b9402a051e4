"""Create a project folder with a pipeline that runs, a story that tests it, a configuration and a few events."""

import re
from pathlib import Path
from typing import Final

from strandline.cli.terminal import plain_console
from strandline.errors import SetupError

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

PIPELINE: Final = '''"""Sum scores per team and minute, from the files in events/ to a SQLite table."""

import strandline as sl

pipeline = (
    sl.read(sl.files("events", sl.json("team string, score long, at timestamp")))
    .event_time("at", sl.bounded(seconds=10))
    .key_by("team")
    .window(sl.tumbling(minutes=1))
    .trigger(sl.after_watermark(late=sl.after_count(1)))
    .accumulate(sl.retracting)
    .allow_lateness(minutes=5)
    .aggregate(total=sl.sum("score"))
    .write(sl.sqlite("totals.db", table="totals"))
)
'''

STORY: Final = """story: a late score corrects the total of its minute
pipeline: pipeline.py:pipeline
steps:
  - input: [{team: red, score: 3, at: 5s}, {team: red, score: 4, at: 40s}, {team: blue, score: 2, at: 45s}]
  - watermark: 1m
  - expect:
      - {team: red, window: [0s, 1m], total: 7, timing: on_time}
      - {team: blue, window: [0s, 1m], total: 2, timing: on_time}
  - input: [{team: red, score: 1, at: 50s}]
  - expect:
      - {team: red, total: 7, retraction: true}
      - {team: red, total: 8, timing: late}
  - watermark: 7m
  - input: [{team: red, score: 9, at: 55s}]
  - expect_late: [{team: red, score: 9, reason: expired}]
"""

CONFIG: Final = """# `strandline config show` prints the settings in effect and their sources.
[run]
checkpoint = "checkpoint"
name = "NAME"
alarms = "alarms.toml"

[jobs]
folders = ["."]
"""

ALARMS: Final = """# Other rules keep their default limits. `strandline alarms test` sends a test to every channel.
[watermark_stuck]
after = "2m"

# [[tell]]
# webhook = "https://example.org/hook"
# headers = { Authorization = "env:ALARM_TOKEN" }
"""

EVENTS: Final = """{"team": "red", "score": 3, "at": "2026-01-01T12:00:05Z"}
{"team": "blue", "score": 2, "at": "2026-01-01T12:00:20Z"}
{"team": "red", "score": 4, "at": "2026-01-01T12:00:40Z"}
{"team": "blue", "score": 5, "at": "2026-01-01T12:02:00Z"}
"""

README: Final = """# NAME

    strandline play totals.story.yaml         # test pipeline.py without Spark, in milliseconds
    strandline run pipeline.py                # reads events/, writes totals.db; Ctrl-C stops it
    strandline status checkpoint              # its status, from another terminal
    strandline drain checkpoint               # close every window, then end the job
"""

FILES: Final = {
    "pipeline.py": PIPELINE,
    "totals.story.yaml": STORY,
    "strandline.toml": CONFIG,
    "alarms.toml": ALARMS,
    "events/first.json": EVENTS,
    "README.md": README,
    ".gitignore": "checkpoint/\n*.db\n",
}


def run_init(name: str) -> int:
    """Write the files; refuse a folder that is not empty."""
    folder = Path(name)
    if not _NAME.fullmatch(folder.name):
        raise SetupError(
            f"{folder.name!r} is not a valid project name", hint="use letters, digits, - and _, a letter first"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} exists already", hint="choose another name, or an empty folder")
    for place, text in FILES.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("NAME", folder.name), encoding="utf-8")
    plain_console().print(
        f"{folder} is ready: cd {folder}, then strandline play totals.story.yaml, then strandline run pipeline.py"
    )
    return 0
