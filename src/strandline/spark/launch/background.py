"""Run a function in a thread. Most of a job's start is waiting: for a JVM, a server, a Python process."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class BackgroundTask(Generic[Result]):
    """A function that runs in a daemon thread from now on."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._results: list[Result] = []
        self._error: BaseException | None = None
        # A daemon, so that a program can end without waiting for it.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._error = error

    def result(self) -> Result:
        """Wait for the function, and return its result or raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def discard(self, undo: Callable[[Result], None]) -> None:
        """Call `undo` with the result once there is one. Does not wait."""

        def wait_and_undo() -> None:
            self._thread.join()
            for result in self._results:
                undo(result)

        threading.Thread(target=wait_and_undo, daemon=True).start()
