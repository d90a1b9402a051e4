"""What a row of a changelog says: a row came, another took its place, or it went."""

from enum import StrEnum


class Change(StrEnum):
    """An update is told by two rows: the one that was, then the one that is."""

    INSERT = "insert"
    UPDATE_BEFORE = "update_before"
    UPDATE_AFTER = "update_after"
    DELETE = "delete"
