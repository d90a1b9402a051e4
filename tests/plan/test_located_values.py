"""YAML is read safely, within limits, as version 1.2 reads it, and every value has a line."""

from typing import Any

import pytest

from strandline.errors import InvalidStory
from strandline.plan.stories.located_values import MOST_CHARACTERS, MOST_DEEP, Written, from_value, from_yaml


def read(text: str) -> Written:
    (document,) = from_yaml(text, "a.story.yaml")
    return document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("010", 10),
        ("1_000", 1000),
        ("-0x1f", -31),
        ("1:30", "1:30"),
        ("1.5", 1.5),
        ("1e3", "1e3"),
        (".inf", float("inf")),
        ("-.inf", float("-inf")),
        ("2024-05-01", "2024-05-01"),
        ("~", None),
        ("'5'", "5"),
        ("=", "="),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    assert read(text).plain() == value


def test_every_value_has_a_line() -> None:
    tree = read("a: 1\nb:\n  - x\n  - {c: 2}\nd:\n")
    members = tree.members()
    assert members["a"].place == "a.story.yaml:1"
    assert members["b"].items()[1].members()["c"].place == "a.story.yaml:4"
    assert members["d"].place == "a.story.yaml:5"


def test_values_from_python_have_a_path() -> None:
    tree = from_value({"steps": [{"clock": 5}]}, "story")
    assert tree.members()["steps"].items()[0].members()["clock"].place == "story.steps[0].clock"


def test_a_file_may_have_several_documents_and_empty_ones_are_none() -> None:
    assert [each.plain() for each in from_yaml("a: 1\n---\n---\nb: 2\n", "f")] == [{"a": 1}, None, {"b": 2}]
    assert from_yaml("# nothing\n", "f") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", r"f:[12]: invalid YAML"),
        ("x: 1\na: b: c", r"f:2: invalid YAML"),
        ("a: 1\na: 2", r"f:2: 'a' is given twice"),
        ("? [1, 2]\n: 3", r"f:1: found a sequence as a name, expected a string"),
        ("a: &x {b: 1}\nc: {<<: *x}", r"f:2: found a scalar as a name, expected a string"),
        ("a: !!binary aGVsbG8=", r"f:1: found a value with the tag .*binary, expected plain YAML"),
        ("a: !!python/name:os.system x", r"f:1: found a value with the tag .*python"),
        ("&a [*a]", f"more than {MOST_DEEP} levels"),
        ("a:\n  " + "[" * 200_000, f"f:2: more than {MOST_DEEP} levels"),
        ("a" * (MOST_CHARACTERS + 1), "expected at most 1,000,000"),
        ("\x00", "invalid YAML"),
    ],
)
def test_unreadable_yaml_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidStory, match=message):
        from_yaml(text, "f")


def test_aliases_that_expand_a_short_text_are_refused() -> None:
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    laughs += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(InvalidStory, match="more than 100,000 values"):
        from_yaml(laughs, "f")


@pytest.mark.parametrize(
    ("read_as", "found", "expected"),
    [
        (Written.text, "5", "a string"),
        (Written.integer, "x", "a whole number"),
        (Written.integer, "true", "a whole number"),
        (Written.number, "true", "a number"),
        (Written.boolean, "1", "true or false"),
        (Written.items, "x", "a list"),
        (Written.members, "[1]", "a mapping"),
        (Written.length, "soon", "is not a length of time"),
        (Written.time, "soon", "is not a time"),
        (lambda written: written.one_of(["left", "right"]), "lefft", "left or right"),
        (lambda written: written.members_among(["a"], "it"), "{b: 1}", "it has no 'b', expected a"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(read_as: Any, found: str, expected: str) -> None:
    with pytest.raises(InvalidStory) as error:
        read_as(read(found))
    assert error.value.message.startswith("a.story.yaml:1: ")
    assert expected in error.value.message


def test_the_most_similar_word_is_suggested() -> None:
    with pytest.raises(InvalidStory) as error:
        read("tigger").one_of(["trigger", "window"])
    assert error.value.hint == "did you mean trigger?"


def test_long_values_are_cut_in_errors() -> None:
    with pytest.raises(InvalidStory) as error:
        read("x" * 500).integer()
    assert len(error.value.message) < 200


def test_whole_milliseconds_are_lengths_and_times() -> None:
    assert read("1500").length().ms == 1500
    assert read("-1500").time().ms == -1500
