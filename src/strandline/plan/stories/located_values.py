"""Read YAML or Python values as a tree in which every value knows its position.

YAML is read safely, within limits, as version 1.2 reads it: only `true` and `false` are booleans, and dates stay
strings.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import yaml

from strandline.errors import InvalidStory, PlanError
from strandline.model.elements import Duration, Timestamp, duration, instant

MOST_CHARACTERS: Final = 1_000_000
MOST_NODES: Final = 100_000
MOST_DEEP: Final = 40

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Written:
    """A scalar, list or mapping with its position, as error messages show it."""

    value: Any
    place: str

    def error(self, expected: str, *, hint: str = "") -> InvalidStory:
        """Return the error that shows the value found here and what was expected."""
        return InvalidStory(f"{self.place}: found {_shown(self.plain())}, expected {expected}", hint=hint)

    def plain(self) -> Any:
        """Return the value without positions."""
        match self.value:
            case list():
                return [each.plain() for each in self.value]
            case dict():
                return {name: each.plain() for name, each in self.value.items()}
        return self.value

    def text(self, expected: str = "a string") -> str:
        if isinstance(self.value, str):
            return self.value
        raise self.error(expected)

    def integer(self, expected: str = "a whole number") -> int:
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        raise self.error(expected)

    def number(self, expected: str = "a number") -> float:
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            return self.value
        raise self.error(expected)

    def boolean(self) -> bool:
        if isinstance(self.value, bool):
            return self.value
        raise self.error("true or false")

    def one_of(self, words: Collection[str]) -> str:
        if isinstance(self.value, str) and self.value in words:
            return self.value
        raise self.error(" or ".join(words), hint=_nearest(self.value, words))

    def length(self) -> Duration:
        """Return a length of time; integers are milliseconds."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return Duration(self.value)
        with self.locating():
            return duration(self.value)

    def time(self) -> Timestamp:
        with self.locating():
            return instant(self.value)

    def items(self, expected: str = "a list") -> list["Written"]:
        if isinstance(self.value, list):
            return self.value
        raise self.error(expected)

    def members(self, expected: str = "a mapping") -> dict[str, "Written"]:
        if isinstance(self.value, dict):
            return self.value
        raise self.error(expected)

    def variant(self, kinds: Mapping[str, Collection[str]], what: str) -> tuple[str, "Written", dict[str, "Written"]]:
        """Split a mapping that names one of these kinds: the kind, its value, and the options beside it."""
        members = self.members(f"{what}: one of {', '.join(kinds)}")
        found = [name for name in members if name in kinds]
        if not found:
            raise self.error(f"{what}: one of {', '.join(kinds)}", hint=_nearest(next(iter(members), ""), kinds))
        word = found[0]
        self.members_among((word, *kinds[word]), f"{what} {word!r}")
        return word, members[word], {name: member for name, member in members.items() if name != word}

    def required(self, members: Mapping[str, "Written"], name: str) -> "Written":
        """Return a member; raise if it is missing."""
        if name not in members:
            raise self.error(f"{name!r} too")
        return members[name]

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Add this position to errors of the model."""
        try:
            yield
        except InvalidStory:
            raise
        except PlanError as error:
            raise InvalidStory(f"{self.place}: {error.message}", detail=error.detail, hint=error.hint) from None

    def members_among(self, words: Collection[str], what: str) -> dict[str, "Written"]:
        """Return the members of a mapping; raise if it has others than these words."""
        members = self.members(f"a mapping with {', '.join(words)}")
        for name, member in members.items():
            if name not in words:
                raise InvalidStory(
                    f"{member.place}: {what} has no {name!r}, expected {', '.join(words)}", hint=_nearest(name, words)
                )
        return members


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _nearest(given: Any, words: Collection[str]) -> str:
    near = get_close_matches(str(given), words, n=1)
    return f"did you mean {near[0]}?" if near else ""


def from_value(value: Any, place: str) -> Written:
    """Convert Python values to a tree; positions are paths."""
    match value:
        case Mapping():
            return Written({str(name): from_value(each, f"{place}.{name}") for name, each in value.items()}, place)
        case list() | tuple():
            return Written([from_value(each, f"{place}[{i}]") for i, each in enumerate(value)], place)
    return Written(value, place)


def from_yaml(text: str, name: str) -> list[Written]:
    """Read the documents of a YAML text; positions are `name:line`."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidStory(f"{name}: {len(text):,} characters, expected at most {MOST_CHARACTERS:,}")
    try:
        _check_depth(text, name)
        documents = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidStory(f"{place}: invalid YAML: {problem}") from None
    reader = _Reader(name)
    return [reader.read(document, 0) for document in documents if document is not None]


def _check_depth(text: str, name: str) -> None:
    """Check the depth before nodes are built: libyaml builds them by recursion, and deep ones crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEEP:
            raise InvalidStory(f"{name}:{event.start_mark.line + 1}: more than {MOST_DEEP} levels of values")


class _Reader:
    """Convert YAML nodes to values and count them, because aliases can expand a short text."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0

    def read(self, node: yaml.Node, depth: int) -> Written:
        place = f"{self._name}:{node.start_mark.line + 1}"
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > MOST_DEEP:
            raise InvalidStory(f"{place}: more than {MOST_NODES:,} values, or more than {MOST_DEEP} levels of them")
        match node:
            case yaml.SequenceNode():
                return Written([self.read(each, depth + 1) for each in node.value], place)
            case yaml.MappingNode():
                return Written(dict(self._members(node, depth)), place)
            case yaml.ScalarNode():
                return Written(_scalar(node, place), place)
        raise InvalidStory(f"{place}: a YAML node of an unknown kind")

    def _members(self, node: yaml.MappingNode, depth: int) -> Iterator[tuple[str, Written]]:
        seen = set[str]()
        for name_node, value_node in node.value:
            place = f"{self._name}:{name_node.start_mark.line + 1}"
            if not isinstance(name_node, yaml.ScalarNode) or name_node.tag == "tag:yaml.org,2002:merge":
                raise InvalidStory(f"{place}: found a {name_node.id} as a name, expected a string")
            name = name_node.value
            if name in seen:
                raise InvalidStory(f"{place}: {name!r} is given twice")
            seen.add(name)
            member = self.read(value_node, depth + 1)
            # An empty value has no position of its own, so it gets the position of its name.
            yield name, Written(member.value, place) if member.value is None else member


_ENDS: Final = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


def _scalar(node: yaml.ScalarNode, place: str) -> Any:
    """Read a scalar as YAML 1.2 does: `no` is a string, `010` is ten, `1:30` is a string."""
    text: str = node.value
    kind = node.tag.rpartition(":")[2]
    try:
        match kind:
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" if ":" not in text:
                return int(text, 16 if text.lower().lstrip("+-").startswith("0x") else 10)
            case "float" if ":" not in text:
                return _ENDS[text.lower()] if text.lower() in _ENDS else float(text)
            case "str" | "timestamp" | "bool" | "int" | "float" | "value":
                return text
    except ValueError:
        return text
    raise InvalidStory(f"{place}: found a value with the tag {node.tag}, expected plain YAML")
