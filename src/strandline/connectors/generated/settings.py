"""Settings of a generated stream, as one validated frozen value."""

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
"""How a record can be broken: its end is cut; a word stands in place of the number or of the time; its bytes are not
UTF-8; its time is missing; it is empty."""
_MOST_KEYS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Knobs:
    """Settings of the stream. Shares are between 0 and 1; lengths are in milliseconds, the start since the epoch."""

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
    """The period of bursts, their length, and their speed factor."""
    idle: tuple[tuple[int, int, int], ...] = ()
    """A partition, and the start and end of its silence."""
    clock_drift: tuple[tuple[int, float], ...] = ()
    """A partition, and the share by which its clock runs fast, or slow if negative."""
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
        """How many records a partition has in all; None if unbounded."""
        if self.events is None:
            return None
        return self.events // self.width + (partition < self.events % self.width)


def to_option(knobs: Knobs) -> str:
    """Encode all settings as one Spark option."""
    return json.dumps(dataclasses.asdict(knobs))


def from_option(text: str) -> Knobs:
    fields = json.loads(text)
    lists = {
        "poisons": tuple(fields["poisons"]),
        "bursts": None if fields["bursts"] is None else tuple(fields["bursts"]),
        "idle": tuple(tuple(each) for each in fields["idle"]),
        "clock_drift": tuple(tuple(each) for each in fields["clock_drift"]),
    }
    return Knobs(**fields | lists)


def _problems(knobs: Knobs) -> list[str]:
    """List what is wrong with the settings."""
    shares = {name: getattr(knobs, name) for name in ("disorder", "late", "future", "duplicates", "poison")}
    spans = [*knobs.idle, *((number, 0, 1) for number, _ in knobs.clock_drift)]
    bursts = knobs.bursts or (2, 1, 1.0)
    wrong = {
        f"the rate must be above 0, not {knobs.rate} events a second": knobs.rate <= 0,
        f"the number of partitions must be 1 or more, not {knobs.width}": knobs.width < 1,
        f"{knobs.events} events do not fill {knobs.width} partitions": knobs.events is not None
        and knobs.events < knobs.width,
        f"the number of keys must be 1 to {_MOST_KEYS}, not {knobs.keys}": not 1 <= knobs.keys <= _MOST_KEYS,
        "skew and spread must not be negative": knobs.skew < 0 or knobs.spread < 0,
        "distance, late_by and future_by must be above 0": min(knobs.distance, knobs.late_by, knobs.future_by) <= 0,
        f"unknown poisons {list(knobs.poisons)}: choose from {', '.join(POISONS)}": not knobs.poisons
        or not {*knobs.poisons} <= {*POISONS},
        "bursts are (period, shorter length, speed factor above 0)": not 0 < bursts[1] < bursts[0] or bursts[2] <= 0,
        "idle or clock_drift has an unknown partition, or a silence that ends before it begins": any(
            not 0 <= number < knobs.width or not 0 <= first < last for number, first, last in spans
        ),
        "clock_drift must be above -1": any(share <= -1 for _, share in knobs.clock_drift),
        f"unknown record format {knobs.format!r}: choose one of {', '.join(FORMATS)}": knobs.format not in FORMATS,
        f"{knobs.events_per_batch} events a batch are less than one of each partition": knobs.events_per_batch
        is not None
        and knobs.events_per_batch < knobs.width,
    }
    wrong |= {f"{name}={share} is not a share between 0 and 1": not 0 <= share <= 1 for name, share in shares.items()}
    return [problem for problem, is_so in wrong.items() if is_so]
