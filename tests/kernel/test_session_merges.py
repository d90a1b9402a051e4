"""Spans merge into the sessions that the oracle finds."""

from random import Random

import polars as pl
import pytest

from strandline.kernel.blocks.block import END, START
from strandline.kernel.window import sessions
from strandline.model.elements import Timestamp
from strandline.model.windows import Touching, Window
from strandline.reference.windows import covers

Span = tuple[str | None, int, int, int]


def spans(seed: int) -> list[Span]:
    chance = Random(seed)
    found: list[Span] = []
    for _ in range(chance.randrange(40)):
        start = chance.randrange(60)
        key = chance.choice(["a", "b", None])
        found.append((key, chance.randrange(2), start, start + chance.randrange(1, 8)))
    return found


@pytest.mark.parametrize("longest", [1 << 62, 0])
@pytest.mark.parametrize("touching", list(Touching))
def test_spans_merge_as_in_the_oracle(touching: Touching, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit 0 the running maximum is taken key by key, as where shifted times would overflow."""
    monkeypatch.setattr(sessions, "_LONGEST", longest)
    for seed in range(60):
        given = spans(seed)
        frame = pl.DataFrame(
            given, schema={"key": pl.String, "other": pl.Int64, START: pl.Int64, END: pl.Int64}, orient="row"
        )
        found = sessions.cover(frame, ("key", "other"), touching)
        meant = []
        for key, other in {(row[0], row[1]) for row in given}:
            mine = [row for row in given if row[:2] == (key, other)]
            merged = covers((Window(Timestamp(row[2]), Timestamp(row[3])) for row in mine), touching)
            for row in mine:
                session = merged[Window(Timestamp(row[2]), Timestamp(row[3]))]
                meant.append((*row, session.start.ms, session.end.ms))
        names = ["key", "other", START, END, sessions.COVER_START, sessions.COVER_END]
        assert sorted(found.select(names).rows(), key=str) == sorted(meant, key=str)
        groups = found.select("@group", "key", "other", sessions.COVER_START, sessions.COVER_END).unique()
        assert groups["@group"].n_unique() == groups.height
