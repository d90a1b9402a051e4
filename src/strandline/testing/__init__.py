"""Test pipelines: play a story, or write one as code; pytest collects `*.story.yaml` files by itself.

>>> play({"story": "one and one", "pipeline": {"window": {"tumbling": "1m"}, "aggregate": {"n": {"count": None}}},
...       "steps": [{"input": [{"at": "1s"}, {"at": "2s"}]}, {"watermark": "1m"}, {"expect": [{"n": 2}]}]}).ok
True
"""

from strandline.plan.stories.play import Failure, Outcome
from strandline.plan.stories.story import Story, read_stories
from strandline.testing.playing import PLAYERS, USUAL_PLAYER, play, play_all, play_file
from strandline.testing.streams import TestStream

__all__ = [
    "PLAYERS",
    "USUAL_PLAYER",
    "Failure",
    "Outcome",
    "Story",
    "TestStream",
    "play",
    "play_all",
    "play_file",
    "read_stories",
]
