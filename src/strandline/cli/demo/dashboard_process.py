"""Start the demo's dashboard in a process of its own, so that the page outlives a demo that is killed, and shows it."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

END: Final = "end"
"""The demo's last message, unless it is killed."""


class DashboardProcess:
    """The dashboard's process. `show` is called with its link as soon as it answers, and with each later link.

    The constructor does not wait: the demo runs on while the process starts.
    """

    def __init__(self, definition: dict[str, Any], show: Callable[[str], None]) -> None:
        self._show = show
        # A session of its own, so that Ctrl-C in the terminal or a kill of the process group spares it.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strandline.cli.demo.dashboard_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        self._send(json.dumps(definition))
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> None:
        """Tell the process that the demo has ended. It stays as long as the page is open."""
        self._show = lambda _: None
        self._send(END)
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        with self.process.stdout as answers:
            first = answers.readline()
            self._show(_text(json.loads(first) if first else {"problem": "its process did not start"}))
            for line in answers:
                self._show(_text(json.loads(line)))
        self.process.wait()

    def _send(self, text: str) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(answer: dict[str, str]) -> str:
    if "url" in answer:
        return f"Dashboard: {answer['url']}"
    return f"No dashboard: {answer['problem']}"
