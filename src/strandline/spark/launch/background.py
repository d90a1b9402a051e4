"""What is done beside something else: a job's start mostly waits, now for a JVM, now for a server, now for a Python."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Done = TypeVar("Done")


class Meanwhile(Generic[Done]):
    """Begun at once, beside the caller; whoever asks for it waits for it, and meets what it met."""

    def __init__(self, act: Callable[[], Done]) -> None:
        self._act = act
        self._done: list[Done] = []
        self._problem: BaseException | None = None
        # A program that ends does not wait for it.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._done.append(self._act())
        except BaseException as problem:  # noqa: BLE001 - it is raised where it is asked for
            self._problem = problem

    def result(self) -> Done:
        """What it came to."""
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        return self._done[0]

    def undone(self, undo: Callable[[Done], None]) -> None:
        """Nobody will ask for it: it is taken back once it is there, and nobody waits for that either."""

        def take_back() -> None:
            self._thread.join()
            for done in self._done:
                undo(done)

        threading.Thread(target=take_back, daemon=True).start()
