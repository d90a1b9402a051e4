"""What is done beside something else is there when it is asked for, or raises there, or is taken back."""

import threading

import pytest

from strandline.spark.launch.background import BackgroundTask


def test_it_is_begun_at_once_and_there_when_it_is_asked_for() -> None:
    begun, go = threading.Event(), threading.Event()

    def act() -> int:
        begun.set()
        assert go.wait(10)
        return 7

    meanwhile = BackgroundTask(act)
    assert begun.wait(10)
    go.set()
    assert [meanwhile.result(), meanwhile.result()] == [7, 7]


def test_what_it_met_is_met_by_whoever_asks() -> None:
    def act() -> int:
        raise LookupError("nothing there")

    meanwhile = BackgroundTask(act)
    for _ in range(2):
        with pytest.raises(LookupError, match="nothing there"):
            meanwhile.result()


def test_what_nobody_will_ask_for_is_taken_back_once_it_is_there_and_nobody_waits_for_it() -> None:
    go, back = threading.Event(), threading.Event()
    undone: list[str] = []

    def act() -> str:
        assert go.wait(10)
        return "a JVM"

    def undo(done: str) -> None:
        undone.append(done)
        back.set()

    BackgroundTask(act).discard(undo)
    assert not undone
    go.set()
    assert back.wait(10)
    assert undone == ["a JVM"]


def test_where_it_came_to_nothing_there_is_nothing_to_take_back() -> None:
    def act() -> str:
        raise LookupError("nothing there")

    undone: list[str] = []
    failed = BackgroundTask(act)
    with pytest.raises(LookupError):
        failed.result()
    before = threading.active_count()
    failed.discard(undone.append)
    while threading.active_count() > before:
        threading.Event().wait(0.01)
    assert not undone
