"""Serve the demo's dashboard in its own process.

    standard input    a line of JSON that describes the demo; later "end"
    standard output   a line of JSON for each link, or the reason why there is none

When the demo ends, the server runs for as long as the page is open. When the demo was killed, and so has not sent
"end", the server runs for `LINGERS` seconds more, so that the page can still be opened.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from strandline.cli.demo.dashboard_process import END
from strandline.cli.demo.demo import pipeline_of
from strandline.errors import SetupError

LINGERS: Final = 600.0
"""Seconds that the server runs without an open page after the demo was killed."""
_POLL_SECONDS: Final = 0.5


def serve(demo: dict[str, Any], demo_output: IO[str], send_link: Callable[[str], None]) -> None:
    """Serve the dashboard of one demo, until it is no longer needed."""
    from strandline.cli.actions.dashboard import (
        single_job_dashboard,  # raises SetupError if its packages are not installed
    )

    home = Path(demo["home"])
    shown = single_job_dashboard(home / "checkpoint", pipeline_of(demo).root, lambda: send_link(shown.url))
    with shown:
        send_link(shown.url)
        killed = demo_output.readline().strip() != END
        unseen = time.monotonic()
        while shown.is_watched or (killed and time.monotonic() - unseen < LINGERS):
            if shown.is_watched:
                unseen = time.monotonic()
            time.sleep(_POLL_SECONDS)


def main() -> None:
    """Read the demo's description from standard input and serve its dashboard."""
    demo = json.loads(sys.stdin.readline())

    def send_link(url: str) -> None:
        # The demo, which reads this, may be gone.
        with contextlib.suppress(OSError):
            print(json.dumps({"url": url}), flush=True)

    try:
        serve(demo, sys.stdin, send_link)
    except SetupError as problem:
        print(json.dumps({"problem": problem.message, "detail": problem.detail, "hint": problem.hint}), flush=True)


if __name__ == "__main__":
    main()
