"""Define the errors that Strandline raises, each with a message, a detail and a hint.

StrandlineError
├── PlanError       refused before anything runs
│   ├── InvalidArgument  an argument of a type that the function does not take
│   ├── InvalidTime, InvalidWindow, InvalidWatermark, InvalidTrigger, InvalidAggregate, InvalidStep
│   ├── InvalidSchema    a schema that cannot be read, or has no column form
│   ├── InvalidSecret    a secret that is not given by reference
│   ├── InvalidStory     a story that cannot be read
│   └── Unsupported      a feature that the chosen engine does not support
├── RunError        something outside failed: Java, memory, a folder, a service
│   ├── SetupError, BudgetExceeded, LostRecords
│   ├── ServiceError     a service of `strandline up` did not start, or is not running
│   ├── SourceUnavailable    temporarily: a source is unreachable
│   ├── SinkError        a sink rejected its input
│   │   └── SinkUnavailable  temporarily: it is unreachable or busy
│   ├── LookupFailed     a lookup table cannot be used
│   │   └── LookupUnavailable  temporarily: it is unreachable or busy
│   └── RegistryError    a schema registry's response cannot be used
│       ├── RegistryDown     unreachable, also after retries
│       ├── SchemaNotFound   no such schema, subject or version
│       └── SchemaRefused    the registry rejects this schema
└── StateError      stored state does not match the request
    ├── CheckpointMismatch
    ├── JobDrained       the job was drained with unread input, and cannot read it any more
    ├── SavepointError   a savepoint is damaged, or cannot be restored as requested
    ├── CheckpointDamaged  a file of a checkpoint is torn, empty or missing
    ├── Fenced           a newer driver of the same job has taken over
    ├── LogReplaced      a topic or a table that the job reads was deleted and made anew
    └── BrokenBlock
"""

import re
from typing import Final

from strandline.redaction import redact

_INTERNAL: Final = """
    added age arrived at batch before block by cell change clock closed code counted cover_end cover_start deleted
    detail due_clock due_watermark earliest emitted end exception fires first found from front gap gone group hash
    held hold id index input joined key last left length live many mark marked masked new new_problem newest
    nonspeculative_index now number off offset old one ordinal origin over owner_end owner_start partial partition
    pipeline place problem rank raw reached reason records retraction row salt schema seen sent settled sha sign size
    slice source split spoken start step sure table time timestamp timing to told trigger turn untold value version
    watermark window
""".split()  # noqa: SIM905 - a long list of words
"""Strandline's own columns, without their @. Other words that start with @ are values of users."""
_COLUMN: Final = rf"""[`"']?(?<![\w@])@(?:{"|".join(_INTERNAL)}|flag\d+|[kv]\d+)\b(?:#\d+L?)?[`"']?"""
_LISTED: Final = re.compile(rf"{_COLUMN}\s*,\s*")
_LAST: Final = re.compile(rf"\s*,\s*{_COLUMN}(?=\s*[\])])")
_ALONE: Final = re.compile(_COLUMN)


def hide_internal_columns(text: str) -> str:
    """Remove Strandline's own columns, which start with @, from a text of Spark or Polars."""
    if "@" not in text:
        return text
    return _ALONE.sub("an internal column", _LAST.sub("", _LISTED.sub("", text)))


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


class InvalidArgument(PlanError):
    """An argument that is missing, unknown, or of a type that the function does not take."""


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


class SourceUnavailable(RunError):
    """A source is unreachable; the job waits for it."""


class SinkError(RunError):
    """A sink rejected its input."""


class SinkUnavailable(SinkError):
    """A sink is unreachable or busy; the job waits and sends the same batch again."""


class LookupFailed(RunError):
    """A lookup table cannot be used: it is unknown, lacks a column, or rejects the connection."""


class LookupUnavailable(LookupFailed):
    """A lookup table is unreachable or busy; the job waits and looks the same rows up again."""


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


class JobDrained(StateError):
    """A drain has closed every window of this job, so it cannot read the input that it left."""


class SavepointError(StateError):
    """A savepoint is damaged or unknown, or cannot be restored as requested."""


class CheckpointDamaged(StateError):
    """A file of a checkpoint is torn, empty or missing: the message names it."""


class Fenced(StateError):
    """A newer driver of the same job has claimed the sink; this one can no longer write."""


class LogReplaced(StateError):
    """A topic or a table that the job reads was deleted and made anew, so its offsets mean other records."""


class BrokenBlock(StateError):
    """A block whose version is unknown or whose bytes were damaged."""
