"""Start the demo's dashboard in a process of its own, so that the page outlives a demo that is killed."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from strandline.errors import SetupError

END: Final = "end"
"""The last line the demo sends, unless it is killed."""
_ANSWER_TIMEOUT_SECONDS: Final = 60.0


class DashboardProcess:
    """The dashboard's process. It is ready once it has sent a link."""

    def __init__(self, demo: dict[str, Any], on_link: Callable[[str], None] = lambda _: None) -> None:
        self._on_link, self._answers = on_link, queue.SimpleQueue[dict[str, str]]()
        # A session of its own: neither Ctrl-C in the demo's terminal nor a kill of its process group reaches it.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strandline.cli.demo.dashboard_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        self._say(json.dumps(demo))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            first = self._answers.get(timeout=_ANSWER_TIMEOUT_SECONDS)
        except queue.Empty:
            first = {"problem": "it does not answer"}
        except BaseException:
            self._end()
            raise
        if "problem" in first:
            self._end()
            raise SetupError(first["problem"], detail=first.get("detail", ""), hint=first.get("hint", ""))
        self.url = first["url"]

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        with self.process.stdout as output:
            self._answers.put(json.loads(output.readline() or '{"problem": "it did not start"}'))
            for line in output:
                self.url = json.loads(line)["url"]
                self._on_link(self.url)

    def _say(self, text: str) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close_input()

    def _close_input(self) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell the process that the demo has ended; do not wait until the page is closed."""
        self._on_link = lambda _: None
        self._say(END)
        self._close_input()
