"""Find the story words of an operator. An operator that stories can play is registered here."""

from collections.abc import Collection
from typing import Final, assert_never

from strandline.model.deduplicate import Deduplicate
from strandline.model.joins import IntervalJoin
from strandline.model.operators import Operator
from strandline.model.steps import WindowedStep
from strandline.model.table_join import TableJoin
from strandline.model.temporal_join import TemporalJoin
from strandline.model.window_join import WindowJoin
from strandline.plan.stories.operators.contract import OperatorWords, Readers
from strandline.plan.stories.operators.deduplicate import DeduplicateWords
from strandline.plan.stories.operators.interval_join import JoinWords
from strandline.plan.stories.operators.table_join import TableJoinWords
from strandline.plan.stories.operators.temporal_join import TemporalJoinWords
from strandline.plan.stories.operators.window import WindowWords
from strandline.plan.stories.operators.window_join import WindowJoinWords

__all__ = ["USUAL", "WORDS", "OperatorWords", "Readers", "words_among", "words_of"]

_WINDOW_JOIN = WindowJoinWords()
_WINDOW, _DEDUPLICATE, _JOIN, _TABLES = WindowWords(), DeduplicateWords(), JoinWords(), TableJoinWords()
_AS_OF = TemporalJoinWords()
WORDS: Final[tuple[OperatorWords, ...]] = (_DEDUPLICATE, _JOIN, _AS_OF, _WINDOW_JOIN, _TABLES, _WINDOW)
USUAL: Final[OperatorWords] = _WINDOW
"""The words of a mapping that names no operator: a window over all time."""


def words_among(fields: Collection[str]) -> OperatorWords:
    """Return the words of the operator that these fields choose."""
    return next((words for words in WORDS if words.word in fields), USUAL)


def words_of(operator: Operator) -> OperatorWords:
    """Return the words of an operator."""
    match operator:
        case WindowedStep():
            return _WINDOW
        case Deduplicate():
            return _DEDUPLICATE
        case IntervalJoin():
            return _JOIN
        case WindowJoin():
            return _WINDOW_JOIN
        case TableJoin():
            return _TABLES
        case TemporalJoin():
            return _AS_OF
    assert_never(operator)
