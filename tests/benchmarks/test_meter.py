"""The meter: everyone of a session is counted, also those who have ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.meter import Sample, cpu_at, held, look, members, meter, peak_bytes


def process(proc: Path, pid: int, session: int, times: tuple[int, int, int, int], pages: int) -> None:
    """A line as the kernel writes it; the name may hold blanks and parentheses."""
    (proc / str(pid) / "fd").mkdir(parents=True)
    before, between = f"S 1 1 {session} 0 -1 0 0 0 0 0", "20 0 1 0 100 5000"
    text = f"{pid} (a (strange) name) {before} {' '.join(map(str, times))} {between} {pages} 0 0\n"
    (proc / str(pid) / "stat").write_text(text)
    (proc / str(pid) / "comm").write_text("even\n" if pid % 2 == 0 else "odd\n")


def test_user_and_system_time_of_all_processes_of_a_session_count_with_their_ended_children(tmp_path: Path) -> None:
    process(tmp_path, 10, 10, (100, 20, 3, 4), 7)
    process(tmp_path, 11, 10, (50, 0, 0, 0), 5)
    process(tmp_path, 12, 99, (9_999, 0, 0, 0), 1_000)
    (tmp_path / "self").mkdir()
    (tmp_path / "13").mkdir()  # ended between the listing and the look
    sample = look(10, tmp_path)
    assert sample.cpu_seconds == pytest.approx(1.77)
    assert sample.resident_bytes == 12 * os.sysconf("SC_PAGE_SIZE")
    assert sorted(members(10, tmp_path)) == [10, 11]


def test_memory_is_told_by_the_names_of_processes_and_what_all_have_open_is_counted(tmp_path: Path) -> None:
    for pid, pages in ((10, 7), (11, 5), (12, 100), (13, 2)):
        process(tmp_path, pid, 10, (0, 0, 0, 0), pages)
        for number in range(pid):
            (tmp_path / str(pid) / "fd" / str(number)).touch()
    (tmp_path / "12" / "comm").unlink()  # ended between two looks
    page = os.sysconf("SC_PAGE_SIZE")
    found = held(10, tmp_path)
    assert found.resident_bytes == {"even": 7 * page, "odd": 7 * page}
    assert found.files == 10 + 11 + 13


def test_what_a_child_of_a_child_has_used_is_seen_while_it_lives_and_after_it_has_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    program = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('done', flush=True); input()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with run, meter(run.pid) as metered:
        assert run.stdout is not None
        assert run.stdout.readline() == b"done\n"
        assert look(run.pid).cpu_seconds >= 0.3
        assert look(run.pid).resident_bytes > 0
        run.communicate(b"\n")
    used = [sample.cpu_seconds for sample in metered.looks if sample.resident_bytes]
    assert used == sorted(used)


def test_between_two_looks_time_is_used_evenly() -> None:
    samples = [Sample(10, 1.0, 5), Sample(12, 5.0, 9), Sample(13, 5.0, 7)]
    assert cpu_at(samples, 11) == 3.0
    assert cpu_at(samples, 12) == 5.0
    assert cpu_at(samples, 9) == 1.0
    assert cpu_at(samples, 99) == 5.0
    assert peak_bytes(samples, 11) == 5
    assert peak_bytes(samples, 99) == 9


def test_nobody_can_tell_what_nobody_looked_at() -> None:
    with pytest.raises(ValueError, match="no samples"):
        cpu_at([], 1)
