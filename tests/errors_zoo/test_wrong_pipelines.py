"""A zoo of wrong pipelines: each is refused without Spark, with what happened, the facts, and what to do."""

from pathlib import Path
from typing import Any, Final

import pytest

import strandline as sl
from strandline.errors import PlanError
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Elements, Panes
from strandline.spark.portable_functions import require_portable
from tests.errors_zoo.wrong_columns import COLUMNS
from tests.errors_zoo.wrong_lookups import LOOKUPS
from tests.errors_zoo.wrong_steps import STEPS
from tests.errors_zoo.wrong_words import WORDS
from tests.plan.endpoints import PaperSink

ZOO: Final = {
    **{f"column: {name}": each for name, each in COLUMNS.items()},
    **{f"lookup: {name}": each for name, each in LOOKUPS.items()},
    **{f"word: {name}": each for name, each in WORDS.items()},
    **{f"step: {name}": each for name, each in STEPS.items()},
}


def planned(built: Any) -> None:
    """Plan what was built, as `run` does before Spark starts."""
    if isinstance(built, Elements | Panes):
        built = built.write(PaperSink())
    if isinstance(built, sl.Pipeline):
        to_stages(built.root)
        require_portable(built.root)


@pytest.mark.parametrize("name", ZOO)
def test_a_wrong_pipeline_is_refused_in_the_users_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = ZOO[name]
    with pytest.raises(PlanError) as refused:
        planned(wrong.build())
    assert wrong.what in refused.value.message
    assert wrong.detail in refused.value.detail
    assert wrong.hint in refused.value.hint
    assert not list(tmp_path.iterdir()), "a refused pipeline leaves nothing behind"


def test_the_zoo_has_a_hundred_animals() -> None:
    assert len(ZOO) >= 100
