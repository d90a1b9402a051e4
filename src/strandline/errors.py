"""Define the errors that Strandline raises, each with a message, a detail and a hint.

StrandlineError
├── PlanError       refused before anything runs
│   ├── InvalidTime, InvalidWindow, InvalidWatermark, InvalidTrigger, InvalidAggregate, InvalidStep
│   ├── InvalidSchema    a schema that cannot be read, or has no column form
│   ├── InvalidSecret    a secret that is not given by reference
│   ├── InvalidStory     a story that cannot be read
│   └── Unsupported      a feature that the chosen engine does not support
├── RunError        something outside failed: Java, memory, a folder, a service
│   ├── SetupError, BudgetExceeded, LostRecords
│   ├── ServiceError     a service of `strandline up` did not start, or is not running
│   ├── SinkError        a sink rejected its input
│   │   └── SinkUnavailable  temporarily: it is unreachable or busy
│   └── RegistryError    a schema registry's response cannot be used
│       ├── RegistryDown     unreachable, also after retries
│       ├── SchemaNotFound   no such schema, subject or version
│       └── SchemaRefused    the registry rejects this schema
└── StateError      stored state does not match the request
    ├── CheckpointMismatch
    ├── SavepointError   a savepoint is damaged, or cannot be restored as requested
    ├── CheckpointDamaged  a file of a checkpoint is torn, empty or missing
    ├── Fenced           a newer driver of the same job has taken over
    └── BrokenBlock
"""

from strandline.redaction import redact


class StrandlineError(Exception):
    """An error with a message; optionally the detail behind it, and a hint what to do about it."""

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        # Messages go to terminals, logs, metrics and dead letters.
        self.message, self.detail, self.hint = redact(str(message)), redact(str(detail)), redact(str(hint))
        super().__init__(self.message)

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
    """An invalid timestamp or duration."""


class InvalidWindow(PlanError):
    """An invalid window."""


class InvalidWatermark(PlanError):
    """An invalid watermark strategy."""


class InvalidTrigger(PlanError):
    """An invalid trigger, or one that would lose data."""


class InvalidAggregate(PlanError):
    """An invalid aggregate."""


class InvalidStep(PlanError):
    """A pipeline whose parts do not fit together."""


class InvalidSchema(PlanError):
    """A schema that cannot be read, or that has no column form."""


class InvalidSecret(PlanError):
    """A secret that is not given by reference."""


class InvalidStory(PlanError):
    """A story that cannot be read: file, line, and what was expected there."""


class Unsupported(PlanError):
    """A feature of the model that the chosen engine does not support."""


class RunError(StrandlineError):
    """Something outside failed: Java, memory, a folder, a service."""


class SetupError(RunError):
    """The machine is not ready; the hint says what to type."""


class BudgetExceeded(RunError):
    """More of the input is broken than the limit allows."""


class LostRecords(RunError):
    """Records were deleted from a source before they were read."""


class ServiceError(RunError):
    """A service on this machine did not start, or is not running; the detail has the end of its log."""


class SinkError(RunError):
    """A sink rejected its input."""


class SinkUnavailable(SinkError):
    """A sink is unreachable or busy; the job waits and sends the same batch again."""


class RegistryError(RunError):
    """A schema registry's response cannot be used."""


class RegistryDown(RegistryError):
    """A schema registry was unreachable, also after retries."""


class SchemaNotFound(RegistryError):
    """A schema registry has no such schema, subject or version."""


class SchemaRefused(RegistryError):
    """A schema registry rejects this schema."""


class StateError(StrandlineError):
    """Stored state does not match the request."""


class CheckpointMismatch(StateError):
    """The checkpoint was written by another pipeline, or by another version of this one."""


class SavepointError(StateError):
    """A savepoint is damaged or unknown, or cannot be restored as requested."""


class CheckpointDamaged(StateError):
    """A file of a checkpoint is torn, empty or missing: the message names it."""


class Fenced(StateError):
    """A newer driver of the same job has claimed the sink; this one can no longer write."""


class BrokenBlock(StateError):
    """A block whose version is unknown or whose bytes were damaged."""
