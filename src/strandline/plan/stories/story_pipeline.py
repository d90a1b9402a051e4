"""Define the pipeline of a story: a plan over named inputs, the same nodes that a user's pipeline has."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from strandline.errors import InvalidStory
from strandline.model.elements import TimeDomain
from strandline.model.operators import Operator
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND, ByClock, Inputs, Watermark, by_clock
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Delivery, Source
from strandline.plan.nodes import EventTime, KeyedNode, Read, Root, Write, over, walk
from strandline.plan.operators.contract import Accepted
from strandline.plan.rules import RULES
from strandline.plan.rules.refuse_columns import refuse_columns
from strandline.plan.stages import KeyedStep, Stages

KEY, AT = "key", "at"
"""Columns of a story's elements: their key, if no other is named, and their event time."""
GROUPS = 2
"""Two key groups, so that stories find results that depend on the grouping of keys."""
ONLY = "input"
"""Name of the input of a story that names none."""

_CALLED: Final = re.compile(r"\w+\(([^=,()]+)\)")

_RULES = tuple(rule for rule in RULES if rule is not refuse_columns)
"""The columns of a story's elements are those of its steps, so they are unknown when its pipeline is parsed."""


@dataclass(frozen=True, slots=True)
class StorySource:
    """An input of a story. Its elements stand in the steps."""

    name: str
    partitions: tuple[str, ...] = ()

    @property
    def types(self) -> Mapping[str, str]:
        return {}

    @property
    def decoder(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class StorySink:
    """An output of a story. Its rows are compared with the expectations."""

    name: str

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class StoryPipeline:
    """A plan, the names of its operators, and whether each element is a batch."""

    root: Root
    names: tuple[tuple[str, KeyedNode], ...] = ()
    """Operators by name; those of a user's pipeline have none."""
    fires_per_element: bool = False
    output_names: tuple[str, ...] = field(default=("",))
    """Outputs as expectations name them; the only one is not named."""

    @property
    def stages(self) -> Stages:
        """Return the stages, as a job compiles them."""
        return _stages(self.root, is_inline=self.is_inline)

    @property
    def is_inline(self) -> bool:
        """Tell whether the story defines its pipeline; else it plays a user's pipeline."""
        return all(isinstance(source, StorySource) for source in self.sources)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(dict.fromkeys(node.source for node in walk(self.root) if isinstance(node, Read)))

    def input_name(self, source: Source) -> str:
        """Return the name of a source as steps write it."""
        return source.name if self.is_inline else short_name(source.name)

    @property
    def nodes(self) -> tuple[KeyedNode, ...]:
        """Return the keyed operators in the order of the steps that run them."""
        return tuple(node for node in walk(self.root) if isinstance(node, KeyedNode))

    @property
    def operator(self) -> Operator:
        """Return the definition of the only operator."""
        (only,) = self.nodes
        return only.operator

    @property
    def step(self) -> WindowedStep:
        """Return the windowed step that is the only operator."""
        operator = self.operator
        assert isinstance(operator, WindowedStep)  # noqa: S101 - asked for where it is known to be one
        return operator

    @property
    def times(self) -> Mapping[str, Watermark | Inputs]:
        """Return the watermark of each input."""
        found = [node for node in walk(self.root) if isinstance(node, EventTime)]
        return {
            source.source.name: node.watermark for node in found for source in walk(node) if isinstance(source, Read)
        }

    @property
    def watermark(self) -> Watermark | Inputs:
        """Return the watermark of the only input."""
        (only,) = self.times.values()
        return only

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return the partitions of the only input that are known from the start; an input by hand has none."""
        (only,) = self.sources
        return () if isinstance(self.watermark, Inputs) else only.partitions

    def name_of(self, step: KeyedStep | int) -> str:
        """Return the name of the operator that a step runs."""
        number = step if isinstance(step, int) else step.number
        node = self.nodes[number]
        return next((name for name, each in self.names if each == node), f"step {number}")

    def number_of(self, name: str) -> int:
        """Return the number of the step that runs an operator."""
        known = [self.name_of(number) for number in range(len(self.nodes))]
        if name not in known:
            raise InvalidStory(f"no operator is called {name!r}", detail=f"there are {', '.join(known) or 'none'}")
        return known.index(name)


def short_name(name: str) -> str:
    """Return what a user's code calls a source or sink: `events` of `files('events')`; else the whole name."""
    found = _CALLED.fullmatch(name)
    return name if found is None else found[1].strip("'\"")


@lru_cache(maxsize=256)
def _stages(root: Root, *, is_inline: bool) -> Stages:
    return to_stages(root, GROUPS, _RULES if is_inline else RULES)


def story_input(name: str, rule: Watermark | Inputs, partitions: Sequence[str] = ()) -> EventTime:
    """Return an input with its watermark. Inputs by hand are known from the start, like partitions."""
    known = rule.names if isinstance(rule, Inputs) else tuple(partitions)
    is_by_clock = isinstance(rule, Watermark) and isinstance(rule.generator, ByClock)
    return EventTime(Read(StorySource(name, known)), None if is_by_clock else AT, rule)


def one_operator(
    operator: Operator,
    rule: Watermark | Inputs | None = None,
    partitions: Sequence[str] = (),
    fires_per_element: bool = False,
) -> StoryPipeline:
    """Return the pipeline of one operator over one input."""
    rule = rule or (by_clock() if operator.time is TimeDomain.PROCESSING else BY_HAND)
    node = over(story_input(ONLY, rule, partitions), (KEY,), operator, accepted=frozenset(Accepted))
    return StoryPipeline(written(node, ""), (("", node),), fires_per_element)


def written(node: KeyedNode, name: str) -> Write:
    """Return the output of an operator."""
    return Write(node, StorySink(name), Delivery.EXACTLY_ONCE)
