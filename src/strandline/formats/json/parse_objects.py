"""Parse JSON objects in whole batches; find the error of each record that does not parse."""

import json as stdlib_json
import re
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import json as arrow_json

from strandline.formats.json.type_errors import find_type_errors, suspect_pattern
from strandline.formats.text import texts_of
from strandline.formats.undecodable_records import Places
from strandline.formats.varints import NOT_UTF8

_SPACE: Final = " \t\r\n"
_BYTE_ORDER_MARK: Final = "\ufeff"
_SAMPLE: Final = 1_000
"""Records to try before a batch of many times as many."""
_NULL_AFTER_OBJECT: Final = re.compile(r"\}[ \t\r\n]*null")


def read_objects(values: pl.Series, schema: pa.Schema) -> tuple[Places, pa.Table, dict[int, str]]:
    """The positions of the decodable records, their columns, and an error for each of the others."""
    lines, closed = _lines(texts_of(values))
    problems = _find_problems(lines, closed)
    places = np.arange(len(lines))
    if problems:
        places = np.delete(places, list(problems))
        lines = lines[places]
    good: list[Places] = [np.empty(0, np.int64)]
    tables: list[pa.Table] = []
    _parse_records(lines, places, schema, good, tables, problems)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    return np.concatenate(good), table, problems


def _lines(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Trim the text around each object, and check that it opens and closes an object; usually no text needs
    trimming."""
    closed = _closed(texts)
    if closed.all():
        return texts, closed
    lines = texts.str.strip_prefix(_BYTE_ORDER_MARK).str.strip_chars(_SPACE)
    return lines, _closed(lines)


def _closed(texts: pl.Series) -> pl.Series:
    return texts.str.starts_with("{") & texts.str.ends_with("}")


def _find_problems(lines: pl.Series, closed: pl.Series) -> dict[int, str]:
    """Report obvious errors, so that no record's text can run into the next one."""
    found = dict.fromkeys(lines.is_null().arg_true(), NOT_UTF8)
    for place in (~closed).fill_null(value=False).arg_true():
        found[place] = "not a JSON object" if lines[place] else "an empty record"
    # Arrow's parser crashes the process on a null in place of an object; inside a string null is harmless.
    for place in (lines.str.contains("null", literal=True) & closed).fill_null(value=False).arg_true():
        if not _NULL_AFTER_OBJECT.search(lines[place]):
            continue
        try:
            stdlib_json.loads(lines[place])
        except (ValueError, RecursionError) as problem:
            found[place] = str(problem)
    return found


def _parse_records(
    lines: pl.Series,
    places: Places,
    schema: pa.Schema,
    good: list[Places],
    tables: list[pa.Table],
    problems: dict[int, str],
) -> None:
    """Parse all lines at once; on failure set aside the records with values of wrong types, and parse the others."""
    if not len(places):
        return
    # The parser reports a number that does not fit its column at the end, so that a failure of a whole batch is dear.
    sampled = len(lines) >= 10 * _SAMPLE and _parse_all(lines[:_SAMPLE], places, schema, [], []) is not None
    if not sampled and _parse_all(lines, places, schema, good, tables) is None:
        return
    suspects = lines.str.contains(suspect_pattern(schema)).arg_true().to_numpy()
    # The parser refuses halves of surrogate pairs, which the standard library accepts.
    suspects = suspects[~lines[suspects].str.contains("\\u", literal=True).to_numpy()]
    wrong = find_type_errors(lines[suspects], schema, lambda line: _error_of(line, schema))
    bad = suspects[list(wrong)]
    problems.update(zip(places[bad].tolist(), wrong.values(), strict=True))
    kept = np.ones(len(lines), np.bool_)
    kept[bad] = False
    _parse_bisecting(lines.filter(pl.Series(kept)), places[kept], schema, good, tables, problems)


def _parse_all(
    lines: pl.Series, places: Places, schema: pa.Schema, good: list[Places], tables: list[pa.Table]
) -> str | None:
    """Parse all lines at once; return the parser's error."""
    try:
        tables.append(_parse(lines, schema))
    except (pa.ArrowInvalid, ValueError) as problem:
        return str(problem)
    good.append(places)
    return None


def _error_of(line: str, schema: pa.Schema) -> str | None:
    """Return the parser's error of one record."""
    return _parse_all(pl.Series([line]), np.zeros(1, np.int64), schema, [], [])


def _parse_bisecting(
    lines: pl.Series,
    places: Places,
    schema: pa.Schema,
    good: list[Places],
    tables: list[pa.Table],
    problems: dict[int, str],
) -> None:
    """Parse all lines at once; on failure parse each half on its own, down to the invalid records."""
    if not len(places):
        return
    problem = _parse_all(lines, places, schema, good, tables)
    if problem is None:
        return
    if len(places) == 1:
        problems[int(places[0])] = problem
        return
    middle = len(places) // 2
    for half in (slice(0, middle), slice(middle, None)):
        _parse_bisecting(lines[half], places[half], schema, good, tables, problems)


def _parse(lines: pl.Series, schema: pa.Schema) -> pa.Table:
    parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # A block must hold the longest record, and a single block keeps the parser from starting threads. The text ends
    # with a newline, so that a record of several lines is not cut at its last one.
    joined = pl.concat([lines, pl.Series([""])]).str.join("\n")
    text = joined.to_arrow(compat_level=pl.CompatLevel.oldest()).buffers()[2]
    reading = arrow_json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1024))
    table = arrow_json.read_json(pa.BufferReader(text), reading, parsing)
    if table.num_rows != len(lines):
        raise ValueError("more than one JSON object in a record")
    return table
