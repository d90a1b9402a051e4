"""Find the columns that an expression in Spark SQL reads, without Spark.

The text is split into tokens, not parsed. A name counts as a column only if it can be nothing else: not a function, a
keyword, a type, a field, an alias or a parameter of a lambda. So a column may be missed, and Spark then reports it; but
valid SQL is never refused.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* | /\*.*?\*/)
  | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*' | [rR]?"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<number>\d[\w.]*|\.\d\w*)
  | (?P<word>[^\W\d]\w*)
  | (?P<sign>->|=>|::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS: Final = frozenset(
    """
    all and any array as asc at between binary boolean both by byte case cast collate cross current current_date
    current_time current_timestamp current_user date day dayofyear days day_hour day_minute day_second dec decimal
    desc distinct div double else end escape except exists extract false filter first float following for from group
    hour hours ignore ilike in inf infinity int integer intersect interval is json last leading left like local
    localtime localtimestamp long map microsecond microseconds millisecond milliseconds minute minutes month months
    named_struct nan nanosecond nanoseconds natural not null nulls numeric on or order over overlay partition
    position preceding quarter range real regexp respect right rlike row rows second seconds select session_user
    short similar smallint some sounds string struct substring symmetric table then time timestamp timestamp_ltz
    timestamp_ntz tinyint to trailing trim true try_cast unbounded union unknown user using values varchar variant
    void week weeks when where within without year years zone
    """.split()  # noqa: SIM905 - a long list of words
)
"""Words that may stand in an expression without being a column, in lower case."""
_TYPE_ENDS: Final = {"(": 1, "<": 1, ")": -1, ">": -1}

Token = tuple[str, str]


def columns_read(sql: str) -> tuple[str, ...]:
    """Return the names that must be columns, in order; none if the text has a query of its own."""
    tokens = [(str(each.lastgroup), each.group()) for each in _TOKEN.finditer(sql) if each.lastgroup != "space"]
    if any(kind == "word" and text.lower() in ("select", "over") for kind, text in tokens):
        return ()
    if any(kind == "sign" and text in "'\"`" for kind, text in tokens):
        return ()  # a quote that is not closed: Spark says where
    bound = _lambda_parameters(tokens)
    found = []
    for place, (kind, text) in enumerate(tokens):
        if kind not in ("word", "quoted") or _is_part(tokens, place) or _in_type(tokens, place):
            continue
        name = text[1:-1].replace("``", "`") if kind == "quoted" else text
        if kind == "word" and (name.lower() in _WORDS or name.lower() in bound or name.startswith("_metadata")):
            continue
        found.append(name)
    return tuple(dict.fromkeys(found))


def _at(tokens: list[Token], place: int) -> str:
    return tokens[place][1] if 0 <= place < len(tokens) else ""


def _is_part(tokens: list[Token], place: int) -> bool:
    """Return whether a name is a function, a field, an alias, a type after `::`, or the name of an argument."""
    before, after = _at(tokens, place - 1), _at(tokens, place + 1)
    is_text = place + 1 < len(tokens) and tokens[place + 1][0] == "text"
    of_another = before in (".", ":", "::", "@") or before.lower() == "as" or _ends_value(tokens, place - 1)
    return of_another or after in ("(", "=>", "->") or is_text


def _ends_value(tokens: list[Token], place: int) -> bool:
    """Return whether a value ends here: a name that follows it without an operator is its alias."""
    if place < 0:
        return False
    kind, text = tokens[place]
    if kind == "word":
        return text.lower() not in _WORDS
    return kind == "quoted" or text in (")", "]")


def _in_type(tokens: list[Token], place: int) -> bool:
    """Return whether a place is inside the type of a cast: after `as` or `::`, before the bracket that ends it."""
    depth = 0
    for at in range(place - 1, -1, -1):
        kind, text = tokens[at]
        depth += _TYPE_ENDS.get(text, 0) if kind == "sign" else 0
        if depth >= 0 and (text == "::" or (kind == "word" and text.lower() == "as")):
            return depth > 0 or at == place - 1
        if kind == "sign" and text in "+-*/=!|&;%":
            return False
    return False


def _lambda_parameters(tokens: list[Token]) -> frozenset[str]:
    """Return the parameters of all lambda functions: `x -> …`, `(x, y) -> …`."""
    found = set[str]()
    for place, (_, text) in enumerate(tokens):
        if text != "->":
            continue
        at = place - 1
        if _at(tokens, at) != ")":
            found.add(_at(tokens, at).lower())
            continue
        while at >= 0 and _at(tokens, at) != "(":
            found.add(_at(tokens, at).lower())
            at -= 1
    return frozenset(found)
