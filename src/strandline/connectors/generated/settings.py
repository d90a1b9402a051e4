"""The knobs of a generated stream, as one frozen value that cannot be set wrong."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Final

from strandline.errors import InvalidStep
from strandline.formats.csv import Csv
from strandline.formats.json.codec import Json

COLUMNS: Final = "id string, key string, value double, at timestamp"
FORMATS: Final[dict[str, Json | Csv]] = {"json": Json(COLUMNS), "csv": Csv(COLUMNS)}
POISONS: Final = ("cut", "type", "time", "utf8", "missing", "empty")
"""How a record can be broken: its end is missing; a word stands where the number should, or where the time should; its
bytes are no text; it has no time; it has no bytes."""
_MOST_KEYS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Knobs:
    """Events over partitions. Shares are of one; lengths are in milliseconds, the start since the epoch."""

    seed: int = 0
    rate: float = 1_000.0
    events: int | None = None
    width: int = 4
    start: int | None = None
    keys: int = 100
    skew: float = 0.0
    mean: float = 10.0
    spread: float = 3.0
    mean_per_hour: float = 0.0
    disorder: float = 0.0
    distance: int = 2_000
    late: float = 0.0
    late_by: int = 60_000
    future: float = 0.0
    future_by: int = 86_400_000
    duplicates: float = 0.0
    poison: float = 0.0
    poisons: tuple[str, ...] = POISONS
    bursts: tuple[int, int, float] | None = None
    """Every so long, for so long, so many times as fast."""
    idle: tuple[tuple[int, int, int], ...] = ()
    """A partition, from when and until when it is silent."""
    clock_drift: tuple[tuple[int, float], ...] = ()
    """A partition, and by what share its clock runs fast, or slow below zero."""
    format: str = "json"
    events_per_batch: int | None = None

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise InvalidStep(problem, hint="see the reference page of the generator")

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.width))

    @property
    def decoder(self) -> Json | Csv:
        return FORMATS[self.format]

    def count(self, partition: int) -> int | None:
        """How many records a partition has in all; None if there is no end."""
        if self.events is None:
            return None
        return self.events // self.width + (partition < self.events % self.width)


def to_text(ask: Knobs) -> str:
    """All knobs in one option of Spark's."""
    return json.dumps(dataclasses.asdict(ask))


def from_text(text: str) -> Knobs:
    told = json.loads(text)
    lists = {
        "poisons": tuple(told["poisons"]),
        "bursts": None if told["bursts"] is None else tuple(told["bursts"]),
        "idle": tuple(tuple(each) for each in told["idle"]),
        "clock_drift": tuple(tuple(each) for each in told["clock_drift"]),
    }
    return Knobs(**told | lists)


def _problems(ask: Knobs) -> list[str]:
    """What cannot be, each in a sentence."""
    shares = {name: getattr(ask, name) for name in ("disorder", "late", "future", "duplicates", "poison")}
    spans = [*ask.idle, *((number, 0, 1) for number, _ in ask.clock_drift)]
    bursts = ask.bursts or (2, 1, 1.0)
    wrong = {
        f"a rate of {ask.rate} events a second never begins": ask.rate <= 0,
        f"{ask.width} partitions hold nothing": ask.width < 1,
        f"{ask.events} events do not fill {ask.width} partitions": ask.events is not None and ask.events < ask.width,
        f"{ask.keys} keys cannot be drawn from; 1 to {_MOST_KEYS} can": not 1 <= ask.keys <= _MOST_KEYS,
        "a skew or a spread below zero": ask.skew < 0 or ask.spread < 0,
        "a distance that is not above zero": min(ask.distance, ask.late_by, ask.future_by) <= 0,
        f"poisons {list(ask.poisons)}: there are {', '.join(POISONS)}": not ask.poisons
        or not {*ask.poisons} <= {*POISONS},
        "bursts are (every so long, for less than that, so many times as fast)": not 0 < bursts[1] < bursts[0]
        or bursts[2] <= 0,
        "a partition that is not there, or a silence that ends before it begins": any(
            not 0 <= number < ask.width or not 0 <= first < last for number, first, last in spans
        ),
        "a clock that runs backwards": any(share <= -1 for _, share in ask.clock_drift),
        f"records as {ask.format!r}: choose one of {', '.join(FORMATS)}": ask.format not in FORMATS,
        f"{ask.events_per_batch} events a batch are less than one of each partition": ask.events_per_batch is not None
        and ask.events_per_batch < ask.width,
    }
    wrong |= {f"{name}={share} is not a share between 0 and 1": not 0 <= share <= 1 for name, share in shares.items()}
    return [problem for problem, is_so in wrong.items() if is_so]
