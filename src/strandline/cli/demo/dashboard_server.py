"""Serve the dashboard of one demo; the program of the process that dashboard_process.py starts.

    standard input     one line of JSON that defines the demo's pipeline; later "end"
    standard output    one line of JSON for each link, or one with the reason why there is none

After the demo has ended, the server runs as long as the page is open. After the demo was killed, and so has sent no
"end", it also waits some time for a page to be opened.
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

UNWATCHED_SECONDS: Final = 600.0
"""How long the server of a killed demo runs while no page is open."""
_POLL_SECONDS: Final = 0.5


def serve(definition: dict[str, Any], messages: IO[str], answer: Callable[[str], None]) -> None:
    """Serve the dashboard until the demo has ended and no page is open."""
    from strandline.cli.actions.dashboard import single_job_dashboard  # raises SetupError if the extra is not installed

    home = Path(definition["home"])
    shown = single_job_dashboard(home / "checkpoint", pipeline_of(definition).root, lambda: answer(shown.url))
    with shown:
        answer(shown.url)
        killed = messages.readline().strip() != END
        last_watched = time.monotonic()
        while shown.is_watched or (killed and time.monotonic() - last_watched < UNWATCHED_SECONDS):
            if shown.is_watched:
                last_watched = time.monotonic()
            time.sleep(_POLL_SECONDS)


def main() -> None:
    """Read the definition and serve."""
    definition = json.loads(sys.stdin.readline())

    def answer(url: str) -> None:
        # The demo, which reads this, may be gone.
        with contextlib.suppress(OSError):
            print(json.dumps({"url": url}), flush=True)

    try:
        serve(definition, sys.stdin, answer)
    except SetupError as problem:
        print(json.dumps({"problem": str(problem)}), flush=True)


if __name__ == "__main__":
    main()
