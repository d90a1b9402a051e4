"""Compile a pipeline to stages: apply the rules, then number its nodes and connect them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from strandline.errors import InvalidStep
from strandline.model.watermarks import Inputs, Watermark
from strandline.plan.columns import PANE, READ_ONLY, columns_after
from strandline.plan.endpoints import Source
from strandline.plan.lineage import LineagePath, paths_to
from strandline.plan.nodes import KeyedNode, Node, Read, Root, Write, fingerprint, outputs_of, walk
from strandline.plan.refinement.cautions import cautions_of, has_latest_view, kept_rows
from strandline.plan.rules import RULES
from strandline.plan.sql_pushdown import cross, in_python
from strandline.plan.stages import Deliver, Flow, Input, InputPath, KeyedStep, Route, Scan, Stages, step_name

FEWEST, MOST = 4, 256


def groups_for(cores: int) -> int:
    """Return the number of key groups of a step: two for each core, from 4 to 256.

    The number bounds the parallelism of a job and is stored with its state. Every key group costs a block, a step and
    a few calls in each batch, so more than two a core only add cost (decision 0011).
    """
    return min(max(FEWEST, 2 * cores), MOST)


Consumer = KeyedNode | Write


def to_stages(root: Root, groups: int = FEWEST, rules: Sequence[Callable[[Root], Root]] = RULES) -> Stages:
    """Return the stages of a pipeline; raise if a rule refuses it."""
    for rule in rules:
        root = rule(root)
    return _Plan(root, groups).stages()


@dataclass(frozen=True, slots=True)
class _Plan:
    """Number the sources, keyed steps and outputs of a pipeline."""

    root: Root
    groups: int

    @property
    def writes(self) -> tuple[Write, ...]:
        return outputs_of(self.root)

    @property
    def steps(self) -> tuple[KeyedNode, ...]:
        return tuple(node for node in walk(self.root) if isinstance(node, KeyedNode))

    @property
    def late_steps(self) -> tuple[KeyedNode, ...]:
        """Return the steps with a sink for late elements. Each such sink is an output, numbered after the writes."""
        return tuple(step for step in self.steps if step.late_sink is not None)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(dict.fromkeys(node.source for node in walk(self.root) if isinstance(node, Read)))

    def stages(self) -> Stages:
        consumers: tuple[Consumer, ...] = (*self.steps, *self.writes)
        paths = {consumer: paths_into(consumer) for consumer in consumers}
        scans = tuple(self._scan(source, paths) for source in self.sources)
        flows = {_flow_key(path): name for path, name in self._flows(paths)}
        steps = tuple(self._step(step, paths, flows) for step in self.steps)
        return Stages(scans, steps, self._outputs(), fingerprint(self.root), self.groups, cautions_of(self.root))

    def _flows(self, paths: Mapping[Consumer, tuple[LineagePath, ...]]) -> Iterable[tuple[LineagePath, str]]:
        """Yield every path from a source with the name of its flow. Paths with the same rows and time share a flow."""
        names: dict[tuple[object, ...], str] = {}
        for found in paths.values():
            for path in found:
                if isinstance(path.origin, Read):
                    key = _flow_key(path)
                    names.setdefault(key, f"flow {len(names)}")
                    yield path, names[key]

    def _scan(self, source: Source, paths: Mapping[Consumer, tuple[LineagePath, ...]]) -> Scan:
        of_source = [
            (consumer, number, path)
            for consumer, found in paths.items()
            for number, path in enumerate(found)
            if isinstance(path.origin, Read) and path.origin.source == source
        ]
        names = {_flow_key(path): name for path, name in self._flows(paths)}
        crossing = cross([path for _, _, path in of_source])
        flows: dict[str, Flow] = {}
        for (consumer, number, path), before, after in zip(of_source, crossing.before, crossing.after, strict=True):
            name = names[_flow_key(path)]
            column, rule = _time_of(path)
            start, end = _span_of(path)
            flow = flows.get(name) or Flow(name, before, column, rule, routes=(), start=start, end=end)
            flows[name] = replace(flow, routes=(*flow.routes, self._route(consumer, number, after)))
        source_number = self.sources.index(source)
        dead_to = self._first_output(source)
        return Scan(source_number, source, crossing.native, tuple(flows.values()), dead_to, self._mask(dead_to))

    def _route(self, consumer: Consumer, number: int, operations: tuple[object, ...]) -> Route:
        """Return the route that a path of a consumer takes; `number` is its position among them."""
        if isinstance(consumer, Write):
            return Route(operations, output=self.writes.index(consumer))  # type: ignore[arg-type]
        return Route(operations, step=self.steps.index(consumer), input=number)  # type: ignore[arg-type]

    def _step(
        self,
        node: KeyedNode,
        paths: Mapping[Consumer, tuple[LineagePath, ...]],
        flows: Mapping[tuple[object, ...], str],
    ) -> KeyedStep:
        number = self.steps.index(node)
        routes = tuple(
            self._route(consumer, position, in_python(path.after))
            for consumer, found in paths.items()
            for position, path in enumerate(found)
            if path.origin == node
        )
        inputs = tuple(dict.fromkeys(self._input(path, flows) for path in paths[node]))
        roles = tuple((stream.role, stream.keys) for stream in node.streams for _ in paths_to(stream.of))
        names = tuple(self._origin(path) for path in paths[node])
        dead_to = self._first_output(node)
        late_to = dead_to if node.late_sink is None else len(self.writes) + self.late_steps.index(node)
        operator = node.plan.with_signs(any(_retracts(path) for path in paths[node]))
        path_inputs = tuple(InputPath(*role, name) for role, name in zip(roles, names, strict=True))
        return KeyedStep(
            number,
            self._level(node),
            node.keys,
            operator,
            inputs,
            path_inputs,
            routes,
            late_to,
            dead_to,
            self.groups,
            self._mask(dead_to),
        )

    def _mask(self, output: int) -> tuple[str, ...]:
        dead = self.writes[output].dead
        return () if dead is None else dead.mask

    def _origin(self, path: LineagePath) -> str:
        """Return the name of a path's source or step, which late rows carry."""
        if isinstance(path.origin, KeyedNode):
            return step_name(self.steps.index(path.origin))
        return path.origin.source.name

    def _input(self, path: LineagePath, flows: Mapping[tuple[object, ...], str]) -> Input:
        if isinstance(path.origin, KeyedNode):
            return Input(step_name(self.steps.index(path.origin)), None)
        assert path.time is not None  # noqa: S101 - refuse_missing_time has checked it
        source = path.origin.source
        return Input(flows[_flow_key(path)], path.time.watermark, source.partitions, self.sources.index(source))

    def _level(self, node: KeyedNode) -> int:
        before = [path.origin for path in paths_into(node) if isinstance(path.origin, KeyedNode)]
        return 1 + max((self._level(step) for step in before), default=0)

    def _first_output(self, origin: Source | KeyedNode) -> int:
        """Return the first output that rows of a source or a step reach; its dead letters go there."""
        for number, write in enumerate(self.writes):
            for node in walk(write):
                if node == origin or (isinstance(node, Read) and node.source == origin):
                    return number
        raise InvalidStep("a step is not connected to an output", hint="write its rows to a sink")

    def _outputs(self) -> tuple[Deliver, ...]:
        outputs = [self._output(number, write) for number, write in enumerate(self.writes)]
        for step in self.late_steps:
            assert step.late_sink is not None  # noqa: S101 - by the definition of late_steps
            delivery = self.writes[self._first_output(step)].delivery
            outputs.append(Deliver(len(outputs), step.late_sink, delivery, None))
        return tuple(outputs)

    @staticmethod
    def _output(number: int, write: Write) -> Deliver:
        keys, view, kept = _pane_keys(write), has_latest_view(write), kept_rows(write)
        return Deliver(
            number, write.sink, write.delivery, keys, write.dead, _known_columns(write), has_latest_view=view,
            kept_rows=kept,
        )  # fmt: skip


def paths_into(consumer: Consumer) -> tuple[LineagePath, ...]:
    """Return the paths to all inputs of a consumer, in order. Its position identifies elements."""
    nodes: tuple[Node, ...] = consumer.inputs
    return tuple(path for node in nodes for path in paths_to(node))


def _flow_key(path: LineagePath) -> tuple[object, ...]:
    """Return the identity of a flow: paths with the same rows and the same time are one flow."""
    return (path.origin, path.before, *_time_of(path), *_span_of(path))


def _span_of(path: LineagePath) -> tuple[int | None, int | None]:
    return (None, None) if path.within is None else (path.within.start, path.within.end)


def _time_of(path: LineagePath) -> tuple[str | None, Watermark | Inputs | None]:
    return (None, None) if path.time is None else (path.time.column, path.time.watermark)


def _retracts(path: LineagePath) -> bool:
    return isinstance(path.origin, KeyedNode) and path.origin.retracts


def _known_columns(write: Write) -> tuple[tuple[str, str | None], ...]:
    """Return the columns of written rows. A user's column may have the name of a pane's, so those have no type here."""
    return tuple(
        (name, None if name in PANE else kind) for name, kind in write.columns.items() if name not in READ_ONLY
    )


def _pane_keys(write: Write) -> tuple[str, ...] | None:
    """Return the key columns that identify written panes, as far as they are still there; None for elements."""
    steps = [path.origin for path in paths_to(write.of) if isinstance(path.origin, KeyedNode)]
    if not steps:
        return None
    columns = columns_after(write.of)
    return tuple(key for key in steps[0].keys if key in columns)
