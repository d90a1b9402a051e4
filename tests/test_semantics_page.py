"""The page of stories in docs/ is what the stories say today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_of_stories_is_up_to_date_and_every_rule_has_a_story() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "semantics.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
