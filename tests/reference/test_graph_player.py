"""The oracle over several steps: what a step forwards, and what a restart keeps."""

from strandline.model.aggregates import Count, Sum
from strandline.model.elements import END, Element, Timestamp
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Inputs
from strandline.model.windows import tumbling
from strandline.reference.graph import Graph, Path, Step, StepInput
from strandline.reference.graph_player import GraphPlayer
from strandline.reference.watermarks import begin, on_inputs

BY_HAND = Inputs(("",))
INPUT = StepInput("flow", BY_HAND, source="a")
MINUTES = WindowedStep((("n", Count()),), tumbling("1m"))
HOURS = WindowedStep((("n", Sum("n")),), tumbling("1h"))


def chain() -> GraphPlayer:
    first = Step("minutes", MINUTES, (INPUT,), (Path(("key",), "flow", "a", source="a", time="at"),), outputs=())
    path = Path(("key",), "minutes", "minutes", step=0)
    second = Step("hours", HOURS, (StepInput("minutes", None),), (path,))
    return GraphPlayer(Graph((first, second), frozenset({"key", "at"}), {"minutes": 0, "hours": 1}))


def at(seconds: int, offset: int) -> Element:
    return Element(Timestamp(1_000 * seconds), "k", {}, "", offset, input="a")


def test_panes_of_a_step_are_elements_of_the_next() -> None:
    player = chain()
    player.feed([at(1, 0), at(2, 1), at(61, 2)])
    player.move_watermark(Timestamp(60_000))
    assert (player.watermark_of("minutes"), player.rows_of("hours")) == (Timestamp(60_000), 1)
    (pane,) = player.drain().panes
    assert (pane.values, player.watermark) == ({"n": 3}, END)


def test_every_step_counts_its_own_elements() -> None:
    player = chain()
    player.feed([at(1, 0), at(61, 1)])
    player.drain()
    assert {name: (each.read, each.again, each.missing) for name, each in player.counts.items()} == {
        "minutes": (2, 0, 0),
        "hours": (0, 2, 0),
    }


def test_a_restart_keeps_all_steps() -> None:
    player = chain()
    player.feed([at(1, 0)])
    player.move_watermark(Timestamp(60_000))
    (pane,) = player.restart().drain().panes
    assert pane.values == {"n": 1}


def test_inputs_advance_together_so_none_is_taken_for_the_last_one_active() -> None:
    names = Inputs(("a", "b"))
    both = {"a": (Timestamp(5), False), "b": (Timestamp(9), True)}
    reached = on_inputs(names, begin(names.names), both, Timestamp(0))
    turned = on_inputs(names, reached, {"a": (Timestamp(5), True), "b": (Timestamp(9), False)}, Timestamp(0))
    assert (reached.watermark, turned.watermark) == (Timestamp(5), Timestamp(9))
