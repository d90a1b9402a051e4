"""A path that a file of ours names stays in that file's own folder, even where another program wrote the file."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from strandline.checkpoint.file_copies import COPIES, copy_line, read_copies
from strandline.connectors.files.manifest_log import VERSION, FolderState, Log
from strandline.errors import StateError
from strandline.letters.folder_redrive import Folder
from strandline.letters.store import Redrive
from strandline.ports.inside_folder import is_inside

OUTSIDE = ["../x", "/etc/passwd", "a/../../x", "", "..", "a\0b", "x" * 5_000]


@pytest.mark.parametrize("name", [*OUTSIDE, None, 7])
def test_a_path_that_leads_out_of_a_folder_is_not_inside(name: Any, tmp_path: Path) -> None:
    assert not is_inside(tmp_path, name)


def test_a_link_that_leads_out_or_in_a_circle_is_not_inside(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "own").mkdir()
    (tmp_path / "in").symlink_to(tmp_path / "own")
    assert [is_inside(tmp_path, f"{name}/file") for name in ("out", "circle", "in", "own", "new")] == [
        False, False, True, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_copy_of_a_file_elsewhere_is_damage_and_never_restored(name: str, tmp_path: Path) -> None:
    lines = [copy_line("mine", "spark/offsets/0", b"fine"), copy_line("mine", name, b"evil")]
    (tmp_path / COPIES).write_bytes(b"".join(lines))
    found = read_copies(tmp_path)
    assert (dict(found.held), found.torn) == ({"spark/offsets/0": b"fine"}, 1)


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("place", ["files", "gone"])
def test_a_log_record_that_names_a_file_elsewhere_is_refused(place: str, name: str, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.folder.mkdir()
    record = {"version": VERSION, "kind": "state", "columns": {}, "now": None, "epochs": {}, "ledger": {}, "gone": {}}
    file = {"path": name, "part": "panes", "rows": 1, "bytes": 1}
    record |= {"files": [file]} if place == "files" else {"gone": {name: 1}}
    log.path(1).write_text(json.dumps(record))
    with pytest.raises(StateError, match="not a file of its folder"):
        log.state()
    with pytest.raises(StateError, match="not a file of its folder"):
        FolderState().apply(1, record)


@pytest.mark.parametrize("id_", ["../x", "a/b", "", "a\nb", "é", None, 3])
def test_the_id_of_a_stored_redrive_is_a_name_and_no_path(id_: Any) -> None:
    with pytest.raises(StateError, match="is not the id of a redrive"):
        Redrive(id_, ())
    assert Redrive("3c1f00ab-_", ()).id == "3c1f00ab-_"


def test_a_letter_makes_redrive_read_rows_of_its_sources_folder_only(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("in/own.parquet", "private.parquet"):
        pl.DataFrame({"team": [name]}).write_parquet(tmp_path / name)
    folder = Folder("files", str(tmp_path / "in"), "parquet", {"team": "string"})

    def row(path: Path | str, offset: int = 0) -> Any:
        return folder._row({"source_partition": str(path), "source_offset": offset, "masked": "all", "raw": None})

    assert row(tmp_path / "in" / "own.parquet") == {"team": "in/own.parquet"}
    for path in (tmp_path / "private.parquet", tmp_path / "in" / ".." / "private.parquet", tmp_path / "*.parquet"):
        assert row(path) is None
    assert row(tmp_path / "in" / "own.parquet", -1) is None
