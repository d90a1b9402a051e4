"""What the process of the demo's dashboard does.

    the demo says    what it plays, as a line of JSON; later "end"
    it answers       a line of JSON for each link, or why there is none

When the demo has ended, the page stays for as long as it is open. When the demo was killed, and so has said nothing of
an end, there is some time to open it first.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from strandline.cli.demo.dashboard_process import END
from strandline.cli.demo.demo import played_by
from strandline.errors import SetupError

LINGERS: Final = 600.0
"""Seconds after a demo was killed in which nobody needs to look."""
_LOOK_EVERY: Final = 0.5


def serve(plays: dict[str, Any], said: IO[str], tell: Callable[[str], None]) -> None:
    """The dashboard of one demo, until nobody needs it."""
    from strandline.cli.actions.dashboard import beside  # what it needs may not be installed, which is told

    home = Path(plays["home"])
    shown = beside(home / "checkpoint", played_by(plays).root, lambda: tell(shown.url))
    with shown:
        tell(shown.url)
        killed = said.readline().strip() != END
        unseen = time.monotonic()
        while shown.is_watched or (killed and time.monotonic() - unseen < LINGERS):
            if shown.is_watched:
                unseen = time.monotonic()
            time.sleep(_LOOK_EVERY)


def main() -> None:
    """What this process does."""
    plays = json.loads(sys.stdin.readline())

    def tell(url: str) -> None:
        # The demo may be gone, and with it whoever reads this.
        with contextlib.suppress(OSError):
            print(json.dumps({"url": url}), flush=True)

    try:
        serve(plays, sys.stdin, tell)
    except SetupError as problem:
        print(json.dumps({"problem": problem.message, "detail": problem.detail, "hint": problem.hint}), flush=True)


if __name__ == "__main__":
    main()
