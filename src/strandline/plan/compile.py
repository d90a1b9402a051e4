"""From what was asked to what is done: rules first, then nodes become stages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from strandline.errors import InvalidStep
from strandline.model.watermarks import Watermark
from strandline.plan.columns import columns_after
from strandline.plan.endpoints import Source
from strandline.plan.lineage import Strand, strands_to
from strandline.plan.nodes import KeyedNode, Node, Read, Root, Write, fingerprint, outputs_of, walk
from strandline.plan.rules import RULES
from strandline.plan.sql_pushdown import cross
from strandline.plan.stages import Deliver, Flow, Input, KeyedStep, Route, Scan, Stages, StrandInput, step_name

FEWEST, MOST = 4, 256


def groups_for(cores: int) -> int:
    """Key groups of a step: two for each core. They bound how far a job can be spread, and are kept with the state;
    each is a block, a step and a few calls in every batch, so more than that only costs."""
    return min(max(FEWEST, 2 * cores), MOST)


Consumer = KeyedNode | Write


def to_stages(root: Root, groups: int = FEWEST) -> Stages:
    """The stages of a pipeline, or the reason why it cannot run."""
    for rule in RULES:
        root = rule(root)
    return _Plan(root, groups).stages()


@dataclass(frozen=True, slots=True)
class _Plan:
    """A pipeline with everything in it numbered."""

    root: Root
    groups: int

    @property
    def writes(self) -> tuple[Write, ...]:
        return outputs_of(self.root)

    @property
    def steps(self) -> tuple[KeyedNode, ...]:
        return tuple(node for node in walk(self.root) if isinstance(node, KeyedNode))

    @property
    def rests(self) -> tuple[KeyedNode, ...]:
        """The steps whose late elements go elsewhere, each an output of its own, after those that were written."""
        return tuple(step for step in self.steps if step.rest is not None)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(dict.fromkeys(node.source for node in walk(self.root) if isinstance(node, Read)))

    def stages(self) -> Stages:
        consumers: tuple[Consumer, ...] = (*self.steps, *self.writes)
        strands = {consumer: strands_into(consumer) for consumer in consumers}
        scans = tuple(self._scan(source, strands) for source in self.sources)
        flows = {_flow_key(strand): name for strand, name in self._flows(strands)}
        steps = tuple(self._step(step, strands, flows) for step in self.steps)
        return Stages(scans, steps, self._outputs(), fingerprint(self.root), self.groups)

    def _flows(self, strands: Mapping[Consumer, tuple[Strand, ...]]) -> Iterable[tuple[Strand, str]]:
        """Every notion of time, with a name that does not depend on who asks for it."""
        names: dict[tuple[object, ...], str] = {}
        for found in strands.values():
            for strand in found:
                if isinstance(strand.origin, Read):
                    key = _flow_key(strand)
                    names.setdefault(key, f"flow {len(names)}")
                    yield strand, names[key]

    def _scan(self, source: Source, strands: Mapping[Consumer, tuple[Strand, ...]]) -> Scan:
        mine = [
            (consumer, number, strand)
            for consumer, found in strands.items()
            for number, strand in enumerate(found)
            if isinstance(strand.origin, Read) and strand.origin.source == source
        ]
        names = {_flow_key(strand): name for strand, name in self._flows(strands)}
        crossing = cross([strand for _, _, strand in mine])
        flows: dict[str, Flow] = {}
        for (consumer, given, strand), before, after in zip(mine, crossing.before, crossing.after, strict=True):
            name = names[_flow_key(strand)]
            column, rule = _time_of(strand)
            start, end = _span_of(strand)
            known = flows.get(name) or Flow(name, before, column, rule, routes=(), start=start, end=end)
            flows[name] = replace(known, routes=(*known.routes, self._route(consumer, given, after)))
        number = self.sources.index(source)
        dead_to = self._reached(source)
        return Scan(number, source, crossing.native, tuple(flows.values()), dead_to, self._mask(dead_to))

    def _route(self, consumer: Consumer, number: int, operations: tuple[object, ...]) -> Route:
        """Return the route of a consumer's strand, which has that number among its strands."""
        if isinstance(consumer, Write):
            return Route(operations, output=self.writes.index(consumer))  # type: ignore[arg-type]
        return Route(operations, step=self.steps.index(consumer), input=number)  # type: ignore[arg-type]

    def _step(
        self, node: KeyedNode, strands: Mapping[Consumer, tuple[Strand, ...]], flows: Mapping[tuple[object, ...], str]
    ) -> KeyedStep:
        number = self.steps.index(node)
        routes = tuple(
            self._route(consumer, given, strand.after)
            for consumer, found in strands.items()
            for given, strand in enumerate(found)
            if strand.origin == node
        )
        inputs = tuple(dict.fromkeys(self._input(strand, flows) for strand in strands[node]))
        roles = tuple((stream.role, stream.keys) for stream in node.streams for _ in strands_to(stream.of))
        names = tuple(self._origin(strand) for strand in strands[node])
        dead_to = self._reached(node)
        late_to = dead_to if node.rest is None else len(self.writes) + self.rests.index(node)
        operator = node.plan.with_signs(any(_takes_back(strand) for strand in strands[node]))
        strand_inputs = tuple(StrandInput(*role, name) for role, name in zip(roles, names, strict=True))
        return KeyedStep(
            number,
            self._level(node),
            node.keys,
            operator,
            inputs,
            strand_inputs,
            routes,
            late_to,
            dead_to,
            self.groups,
            self._mask(dead_to),
        )

    def _mask(self, output: int) -> tuple[str, ...]:
        dead = self.writes[output].dead
        return () if dead is None else dead.mask

    def _origin(self, strand: Strand) -> str:
        """Name where a strand comes from, for late rows."""
        if isinstance(strand.origin, KeyedNode):
            return step_name(self.steps.index(strand.origin))
        return strand.origin.source.name

    def _input(self, strand: Strand, flows: Mapping[tuple[object, ...], str]) -> Input:
        if isinstance(strand.origin, KeyedNode):
            return Input(step_name(self.steps.index(strand.origin)), None)
        assert strand.time is not None  # noqa: S101 - a rule has seen to it
        return Input(flows[_flow_key(strand)], strand.time.watermark, strand.origin.source.partitions)

    def _level(self, node: KeyedNode) -> int:
        before = [strand.origin for strand in strands_into(node) if isinstance(strand.origin, KeyedNode)]
        return 1 + max((self._level(step) for step in before), default=0)

    def _reached(self, origin: Source | KeyedNode) -> int:
        """The first output that rows of this origin come to."""
        for number, write in enumerate(self.writes):
            for node in walk(write):
                if node == origin or (isinstance(node, Read) and node.source == origin):
                    return number
        raise InvalidStep("a step leads nowhere")

    def _outputs(self) -> tuple[Deliver, ...]:
        written = [
            Deliver(number, write.sink, write.delivery, _told_apart_by(write), write.dead)
            for number, write in enumerate(self.writes)
        ]
        for step in self.rests:
            assert step.rest is not None  # noqa: S101 - that is what makes it one of these
            delivery = self.writes[self._reached(step)].delivery
            written.append(Deliver(len(written), step.rest, delivery, None))
        return tuple(written)


def strands_into(consumer: Consumer) -> tuple[Strand, ...]:
    """Return the strands of all inputs of a consumer, in order: the position of a strand identifies its elements."""
    nodes: tuple[Node, ...] = consumer.inputs
    return tuple(strand for node in nodes for strand in strands_to(node))


def _flow_key(strand: Strand) -> tuple[object, ...]:
    """What makes two strands one flow: the same rows with the same time."""
    return (strand.origin, strand.before, *_time_of(strand), *_span_of(strand))


def _span_of(strand: Strand) -> tuple[int | None, int | None]:
    return (None, None) if strand.within is None else (strand.within.start, strand.within.end)


def _time_of(strand: Strand) -> tuple[str | None, Watermark | None]:
    return (None, None) if strand.time is None else (strand.time.column, strand.time.watermark)


def _takes_back(strand: Strand) -> bool:
    return isinstance(strand.origin, KeyedNode) and strand.origin.takes_back


def _told_apart_by(write: Write) -> tuple[str, ...] | None:
    """The keys of the panes that are written, as far as they are still among the columns; None if elements are."""
    steps = [strand.origin for strand in strands_to(write.of) if isinstance(strand.origin, KeyedNode)]
    if not steps:
        return None
    left = columns_after(write.of)
    return tuple(key for key in steps[0].keys if key in left)
