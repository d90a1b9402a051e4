"""Every error Strandline raises: the fact, the detail, and the way out.

StrandlineError
├── PlanError       refused before anything runs
│   ├── InvalidTime, InvalidWindow, InvalidWatermark, InvalidTrigger, InvalidAggregate, InvalidStep
│   ├── InvalidSchema    a schema that cannot be read, or cannot be told as columns
│   ├── InvalidSecret    a secret that is not given by reference
│   ├── InvalidStory     a transcript that cannot be read
│   └── Unsupported      a word of the model that this player does not carry
├── RunError        the outside failed: Java, memory, a folder, a service
│   ├── SetupError, BudgetExceeded, LostRecords
│   ├── ServiceError     a service of `strandline up` that did not start, or is not there
│   ├── SinkError        a sink did not take what it was given
│   │   └── SinkUnavailable  for now: it is out of reach, or busy
│   └── RegistryError    a schema registry's answer that cannot be used
│       ├── RegistryDown     out of reach, also after waiting and asking again
│       ├── SchemaNotFound   it has no such schema, subject or version
│       └── SchemaRefused    it does not take this schema
└── StateError      what was kept does not fit what is asked
    ├── CheckpointMismatch
    ├── SavepointError   a savepoint that is damaged, or cannot be restored as it was asked
    ├── CheckpointDamaged  a file of it is torn, empty or missing
    ├── Fenced           a newer driver writes where this one did
    └── BrokenBlock
"""


class StrandlineError(Exception):
    """What happened; optionally the facts behind it, and what to do about it."""

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.detail:
            parts.append(f"({self.detail})")
        if self.hint:
            parts.append(f"Hint: {self.hint}")
        return " ".join(parts)


class PlanError(StrandlineError):
    """The pipeline was refused before anything ran."""


class InvalidTime(PlanError):
    """Not a time, or not a length of time."""


class InvalidWindow(PlanError):
    """A window that cannot be."""


class InvalidWatermark(PlanError):
    """A watermark strategy that cannot be."""


class InvalidTrigger(PlanError):
    """A trigger that cannot be, or that would lose data."""


class InvalidAggregate(PlanError):
    """An aggregate that cannot be."""


class InvalidStep(PlanError):
    """A pipeline whose parts do not fit together."""


class InvalidSchema(PlanError):
    """A schema that cannot be read, or that cannot be told as columns."""


class InvalidSecret(PlanError):
    """A secret that is not given by reference."""


class InvalidStory(PlanError):
    """A transcript that cannot be read: file, line, and what was expected there."""


class Unsupported(PlanError):
    """A word of the model that the chosen player does not carry."""


class RunError(StrandlineError):
    """The outside failed: Java, memory, a folder, a service."""


class SetupError(RunError):
    """The machine is not ready; the hint says what to type."""


class BudgetExceeded(RunError):
    """More of the input is broken than was allowed."""


class LostRecords(RunError):
    """Records are gone from a source before they were read."""


class ServiceError(RunError):
    """A service on this machine did not start, or is not there; the detail has the end of its log."""


class SinkError(RunError):
    """A sink did not take what it was given."""


class SinkUnavailable(SinkError):
    """A sink is out of reach or busy; the same batch may be taken later, so it waits."""


class RegistryError(RunError):
    """A schema registry's answer cannot be used."""


class RegistryDown(RegistryError):
    """A schema registry was out of reach, also after waiting and asking again."""


class SchemaNotFound(RegistryError):
    """A schema registry has no such schema, subject or version."""


class SchemaRefused(RegistryError):
    """A schema registry does not take this schema."""


class StateError(StrandlineError):
    """What was kept does not fit what is asked."""


class CheckpointMismatch(StateError):
    """A checkpoint made by another pipeline, or by another version of this one."""


class SavepointError(StateError):
    """A savepoint that is damaged or unknown, or that cannot be restored as it was asked."""


class CheckpointDamaged(StateError):
    """A file of a checkpoint is torn, empty or missing: the message names it."""


class Fenced(StateError):
    """A newer driver of the same job has claimed the sink; this one can no longer write."""


class BrokenBlock(StateError):
    """A block whose version is unknown or whose bytes were damaged."""
