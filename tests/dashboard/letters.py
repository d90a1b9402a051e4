"""A pipeline of files, and dead letters as its job would write them."""

from pathlib import Path

import strandline as sl
from strandline.cli.actions.dlq import sources_of
from strandline.kernel.dead_letters import PUBLIC
from strandline.letters.envelope_json import to_json
from strandline.ports.durable_files import write_whole


def letters_pipeline(folder: Path) -> sl.Pipeline:
    """JSON lines in a folder, with dead letters in files."""
    (folder / "in").mkdir(exist_ok=True)
    read = sl.read(sl.files(str(folder / "in"), sl.json("team string, score long, at timestamp")))
    return read.write(
        sl.folder(str(folder / "out")), delivery="at_least_once", dead=sl.dead_files(folder / "dead", format="jsonl")
    )


def put_letters(folder: Path, *raws: bytes) -> list[str]:
    """Dead letters as a job writes them."""
    (folder / "dead").mkdir(exist_ok=True)
    (source,) = sources_of(letters_pipeline(folder).root)
    ids, lines = [], b""
    for number, raw in enumerate(raws):
        ids.append(f"{number:08}letter")
        letter = dict.fromkeys(PUBLIC) | {
            "id": ids[-1], "reason": "not JSON", "detail": f"line {number} is broken", "raw": raw,
            "source": source, "source_partition": "a.txt", "source_offset": number,
            "first_seen": 1_794_740_000_000 + number,
        }  # fmt: skip
        lines += to_json({name: letter[name] for name in PUBLIC}) + b"\n"
    write_whole(folder / "dead" / "x-000000000001-0.jsonl", lines)
    return ids
