"""Parse the pipeline of a story: inputs by name, and one operator or several that read each other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from strandline.errors import InvalidStory, Unsupported
from strandline.model.elements import TimeDomain
from strandline.model.operators import Operator
from strandline.model.steps import WindowedStep
from strandline.model.table_join import table_role
from strandline.model.watermarks import BY_HAND, Inputs, Watermark, by_clock
from strandline.plan.endpoints import Delivery
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedInput, KeyedNode, Node, Together, Union, Write
from strandline.plan.operators.contract import INPUT, Accepted
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.operators import OperatorWords, words_among
from strandline.plan.stories.operators.contract import OF, TABLES
from strandline.plan.stories.parse_lookups import enriched
from strandline.plan.stories.parse_windows import watermark
from strandline.plan.stories.story_pipeline import KEY, ONLY, StoryPipeline, StorySink, story_input

_BESIDE: Final = ("watermark", "fires")
"""Fields of a pipeline with one operator and one input, beside those of the operator."""
_INPUT: Final = ("watermark", "time")
_LOOKUP: Final = "enrich"
"""Enriches the only input, before its operator if there is one."""
_EXPECTED: Final = "a pipeline, as a mapping"


def to_pipeline(given: Written) -> StoryPipeline:
    """Parse the pipeline of a story; every field has a default."""
    members = given.members(_EXPECTED)
    if "pattern" in members:
        raise Unsupported(f"{given.place}: stories cannot play a pattern yet", hint="use another operator")
    if "operators" in members:
        return _several(given)
    if _LOOKUP in members:
        return _enriched(given)
    words = words_among(members)
    if "inputs" in members:
        roles = [role for role in words.roles if role != OF]
        settings = given.members_among((*words.fields, *roles, "inputs", "key", "fires"), "a pipeline")
        streams = _inputs(settings["inputs"], _time(settings))
        node = _node(words, given, settings, streams, _time(settings))
    elif OF not in words.roles:
        raise InvalidStory(f"{given.place}: {words.word} needs inputs by name", hint="as in inputs: {left: , right: }")
    else:
        settings = given.members_among((*words.fields, *_BESIDE, "key"), "a pipeline")
        time = _time(settings)
        # The operator is parsed first: its errors come before those of the watermark.
        operator = words.parse(given, settings, time)
        rule, partitions = _watermark(settings, time)
        node = _over(operator, {OF: story_input(ONLY, rule, partitions)}, settings)
    return StoryPipeline(_written(node, ""), (("", node),), _fires_per_element(settings))


def _enriched(given: Written) -> StoryPipeline:
    """Parse a pipeline over rows of an input that are enriched; without an operator these rows are the output."""
    members = given.members(_EXPECTED)
    words = words_among(members)
    settings = given.members_among((_LOOKUP, *words.fields, *_BESIDE, "key"), "a pipeline")
    time = _time(settings)
    node = enriched(settings[_LOOKUP], story_input(ONLY, *_watermark(settings, time)))
    if not {*words.fields} & {*members}:
        return StoryPipeline(Write(node, StorySink(""), Delivery.EXACTLY_ONCE), (), _fires_per_element(settings))
    over = _over(words.parse(given, settings, time), {OF: node}, settings)
    return StoryPipeline(_written(over, ""), (("", over),), _fires_per_element(settings))


def _several(given: Written) -> StoryPipeline:
    """Parse operators by name. Those that no other reads are the outputs."""
    settings = given.members_among(("inputs", "operators", "fires"), "a pipeline with several operators")
    one = {ONLY: story_input(ONLY, BY_HAND)}
    streams: dict[str, Node] = dict(_inputs(settings["inputs"], None) if "inputs" in settings else one)
    inputs = [*streams]
    operators: dict[str, KeyedNode] = {}
    read = set[str]()
    for name, each in settings["operators"].members("operators by name").items():
        if name in streams:
            raise InvalidStory(f"{each.place}: two inputs or operators are called {name!r}", hint="give each its name")
        words = words_among(each.members("an operator, as a mapping"))
        fields = each.members_among((*words.fields, *words.roles, "key"), f"the operator {name!r}")
        before = [*operators][-1:] or inputs
        of = _names_by_role(words, fields, streams, before, each)
        read |= {one for names in of.values() for one in names}
        chosen = {role: _union([streams[one] for one in names]) for role, names in of.items()}
        node = _read_operator(words, each, fields, chosen)
        streams[name] = operators[name] = node
    if not operators:
        raise settings["operators"].error("one operator or more")
    ends = [name for name in operators if name not in read]
    outputs = tuple(_written(operators[name], name if len(ends) > 1 else "") for name in ends)
    root = outputs[0] if len(outputs) == 1 else Together(outputs)
    names = tuple(ends) if len(ends) > 1 else ("",)
    return StoryPipeline(root, tuple(operators.items()), _fires_per_element(settings), names)


def _names_by_role(
    words: OperatorWords,
    fields: Mapping[str, Written],
    streams: Mapping[str, Node],
    usual: list[str],
    given: Written,
) -> dict[str, list[str]]:
    """Return the names of the streams that an operator reads, by role. Each of a list of tables has its own role."""
    found = {role: _names(fields, role, streams, usual, given) for role in words.roles}
    tables = found.pop(TABLES, [])
    return found | {table_role(number): [name] for number, name in enumerate(tables)}


def _names(
    fields: Mapping[str, Written], role: str, streams: Mapping[str, Node], usual: list[str], given: Written
) -> list[str]:
    """Return the names of the streams that an operator reads in a role; by default the operator before it."""
    if role not in fields:
        if role != OF:
            raise given.error(f"{role!r} too")
        return usual
    of = fields[role]
    names = [each.text("a name") for each in of.items()] if isinstance(of.value, list) else [of.text("a name")]
    for name in names:
        if name not in streams:
            known = ", ".join(streams)
            raise InvalidStory(f"{of.place}: no input or earlier operator is called {name!r}", detail=f"known: {known}")
    return names


def _read_operator(
    words: OperatorWords, given: Written, fields: Mapping[str, Written], streams: Mapping[str, Node]
) -> KeyedNode:
    """Parse an operator over its streams. Without a trigger of its own a window fires when the operator before does."""
    if "time" in fields:
        raise fields["time"].error("the time beside the watermark of an input")
    paths = [path for stream in streams.values() for path in paths_to(stream)]
    by_clock_only = any(path.time is not None and path.time.column is None for path in paths)
    time = TimeDomain.PROCESSING if by_clock_only else TimeDomain.EVENT
    operator = words.parse(given, fields, time)
    before = [path.origin.plan.next_trigger for path in paths if isinstance(path.origin, KeyedNode)]
    if isinstance(operator, WindowedStep) and before and "trigger" not in fields:
        with given.locating():
            operator = replace(operator, trigger=before[0])
    return _over(operator, streams, fields)


def _node(
    words: OperatorWords,
    given: Written,
    settings: Mapping[str, Written],
    streams: Mapping[str, Node],
    time: TimeDomain,
) -> KeyedNode:
    named = _names_by_role(words, settings, streams, [*streams], given)
    of = {role: _union([streams[name] for name in names]) for role, names in named.items()}
    return _over(words.parse(given, settings, time), of, settings)


def _over(operator: Operator, streams: Mapping[str, Node], settings: Mapping[str, Written]) -> KeyedNode:
    """Return the node of an operator over streams by role. Everything that needs to be accepted is."""
    inputs = tuple(KeyedInput(INPUT if role == OF else role, of, _keys(settings, role)) for role, of in streams.items())
    return KeyedNode(inputs, operator, accepted=frozenset(Accepted))


def _keys(settings: Mapping[str, Written], role: str) -> tuple[str, ...]:
    """Return the key columns of a role: `key: team`, `key: [team, city]`, or by role."""
    if "key" not in settings:
        return (KEY,)
    given = settings["key"]
    if isinstance(given.value, dict):
        given = given.required(given.members(), role)
    if isinstance(given.value, list):
        keys = tuple(each.text("a column") for each in given.items())
        if not keys:
            raise given.error("one column or more")
        return keys
    return (given.text("a column, or a list of columns"),)


def _union(streams: list[Node]) -> Node:
    return streams[0] if len(streams) == 1 else Union(tuple(streams))


def _inputs(given: Written, time: TimeDomain | None) -> Mapping[str, Node]:
    """Parse inputs by name, each with its watermark."""
    streams: dict[str, Node] = {}
    for name, each in given.members("inputs by name").items():
        settings = {} if each.value is None else each.members_among(_INPUT, f"the input {name!r}")
        own = _time(settings) if time is None or "time" in settings else time
        streams[name] = story_input(name, *_watermark(settings, own))
    if not streams:
        raise given.error("one input or more")
    return streams


def _time(settings: Mapping[str, Written]) -> TimeDomain:
    return TimeDomain(settings["time"].one_of([*TimeDomain])) if "time" in settings else TimeDomain.EVENT


def _watermark(settings: Mapping[str, Written], time: TimeDomain) -> tuple[Watermark | Inputs, tuple[str, ...]]:
    """Parse the rule of a watermark, and the partitions known from the start."""
    by_processing_time = time is TimeDomain.PROCESSING
    if "watermark" not in settings:
        return (by_clock() if by_processing_time else BY_HAND), ()
    if by_processing_time:
        raise settings["watermark"].error("none: in processing time the clock is the watermark")
    return watermark(settings["watermark"])


def _fires_per_element(settings: Mapping[str, Written]) -> bool:
    return "fires" in settings and settings["fires"].one_of(("per_batch", "per_element")) == "per_element"


def _written(node: KeyedNode, name: str) -> Write:
    return Write(node, StorySink(name), Delivery.EXACTLY_ONCE)
