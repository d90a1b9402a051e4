"""Define the kinds of changelog rows."""

from enum import StrEnum


class Change(StrEnum):
    """The kind of a changelog row. An update is two rows: the row before, then the row after."""

    INSERT = "insert"
    UPDATE_BEFORE = "update_before"
    UPDATE_AFTER = "update_after"
    DELETE = "delete"
