"""Stop a job when too much of its input becomes dead letters."""

from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Final

from strandline.errors import BudgetExceeded, InvalidStep
from strandline.kernel.dead_letters import SINK_REFUSED, Reasons
from strandline.kernel.output import Counts
from strandline.model.arguments import checked
from strandline.model.elements import Duration, Length, duration

_REASONS: Final = 3
_EXAMPLE: Final = 120


@dataclass(frozen=True, slots=True)
class FailureBudget:
    """The allowed share of dead letters over a span of processing time, once `at_least` records were read."""

    share: float
    over: Duration
    at_least: int

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise InvalidStep(f"a failure budget of {self.share} is no share", hint="give one from 0 to below 1")
        if self.at_least < 1:
            raise InvalidStep("a failure budget over nothing", hint="let at_least be one or more")


class BudgetUsage:
    """Tracks the used share of a failure budget."""

    def __init__(self, budget: FailureBudget) -> None:
        self._budget = budget
        self._recent: deque[tuple[int, Counts, Reasons]] = deque()

    def spend(self, clock: int, counts: Counts, reasons: Reasons, refused: int = 0) -> None:
        """Add a batch, with the rows that sinks refused; raise if the budget is exceeded, with the reasons."""
        if refused:
            counts = replace(counts, dead=counts.dead + refused)
            reasons = {**reasons, SINK_REFUSED: (refused, "")}
        self._recent.append((clock, counts, reasons))
        while self._recent[0][0] + self._budget.over.ms < clock:
            self._recent.popleft()
        known = sum((each for _, each, _ in self._recent), Counts())
        if known.read >= self._budget.at_least and known.dead > self._budget.share * known.read:
            raise BudgetExceeded(
                f"{known.dead} of the last {known.read} records are dead letters",
                detail=f"{self._why()}; the failure budget is {self._budget.share:.1%} over {self._budget.over}",
                hint="strandline dlq list shows them, all are kept; the next run goes on from here",
            )

    @property
    def spent(self) -> float:
        """Return the used share of the budget; at one the job stops."""
        known = sum((each for _, each, _ in self._recent), Counts())
        allowed = self._budget.share * max(known.read, self._budget.at_least)
        return known.dead / allowed if allowed else float(known.dead > 0)

    def _why(self) -> str:
        """Return the most frequent reasons, each with an example."""
        many, examples = Counter[str](), dict[str, str]()
        for _, _, reasons in self._recent:
            for reason, (count, detail) in reasons.items():
                many[reason] += count
                examples.setdefault(reason, detail)
        return "; ".join(
            f"{count} {reason}" + (f", as in: {examples[reason][:_EXAMPLE]}" if examples[reason] else "")
            for reason, count in many.most_common(_REASONS)
        )


@checked
def failure_budget(share: float, *, over: Length = "5m", at_least: int = 100) -> FailureBudget:
    """Allow a share of dead letters over a span, once enough records were read: `failure_budget(0.1, over="10m")`."""
    return FailureBudget(share, duration(over), at_least)
