"""The demo's dashboard as the demo sees it: a process of its own, so that a demo that is killed is seen on the page."""

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
"""What the demo says last, unless it is killed."""
_ANSWERS_WITHIN: Final = 60.0


class Beside:
    """The other process, as the demo sees it: it is there once there is a link."""

    def __init__(self, plays: dict[str, Any], told: Callable[[str], None] = lambda _: None) -> None:
        self._told, self._answers = told, queue.SimpleQueue[dict[str, str]]()
        # A session of its own: no Ctrl-C of the demo's terminal, and no kill of its group, reaches it.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strandline.cli.demo.dashboard_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        self._say(json.dumps(plays))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            first = self._answers.get(timeout=_ANSWERS_WITHIN)
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
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        with self.process.stdout as said:
            self._answers.put(json.loads(said.readline() or '{"problem": "it did not start"}'))
            for line in said:
                self.url = json.loads(line)["url"]
                self._told(self.url)

    def _say(self, text: str) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._let_go()

    def _let_go(self) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Says that the demo has ended; whether the page is still open is not waited for."""
        self._told = lambda _: None
        self._say(END)
        self._let_go()
