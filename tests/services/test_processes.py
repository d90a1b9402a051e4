import fcntl
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.services import processes
from strandline.services.processes import Process, birth_of, spawn


def sleeper(log: Path, words: str = "import time; print('up', flush=True); time.sleep(600)") -> Process:
    return spawn([sys.executable, "-c", words], log, os.environ)


def test_a_process_lives_until_it_is_signalled(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    assert process.is_alive
    process.send(signal.SIGTERM)
    assert process.is_gone_within(10)
    assert not process.is_alive


def test_a_process_that_ends_while_it_is_observed_is_reaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = sleeper(tmp_path / "log")

    def ends_first(pid: int) -> str | None:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is dead, and its remains are there
        return birth_of(pid)

    monkeypatch.setattr(processes, "birth_of", ends_first)
    assert not process.is_alive
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_its_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for word in ("first", "second"):
        assert sleeper(log, f"import sys; print('{word}'); print('and', file=sys.stderr)").is_gone_within(10)
    assert sorted(log.read_text().split()) == ["and", "and", "first", "second"]
    assert log.stat().st_mode & 0o077 == 0


def test_a_process_has_its_own_session_so_that_a_closed_terminal_does_not_end_it(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    assert os.getsid(process.pid) == process.pid
    process.send(signal.SIGKILL)
    assert process.is_gone_within(10)


@pytest.mark.skipif(sys.platform != "linux", reason="reads descriptors from /proc")
def test_a_process_gets_no_descriptor_of_its_caller_and_no_input(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    for each in (reading, writing):
        os.set_inheritable(each, True)
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = sleeper(tmp_path / "log")
        try:
            found = {int(path.name): path.readlink() for path in Path(f"/proc/{process.pid}/fd").iterdir()}
            assert found[0] == Path("/dev/null")
            assert {path.name for path in found.values()} <= {"null", "log"}
            os.close(writing)
            assert os.read(reading, 1) == b""  # the end of the pipe is seen: nobody else holds it
        finally:
            process.send(signal.SIGKILL)
            os.close(reading)
    assert process.is_gone_within(10)


@pytest.mark.skipif(sys.platform != "linux", reason="reads signals from /proc")
def test_a_process_ignores_and_blocks_no_signal_that_python_or_a_shell_does(tmp_path: Path) -> None:
    asleep = spawn(["/bin/sleep", "600"], tmp_path / "log", os.environ)
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{asleep.pid}/status").read_text().splitlines())
    asleep.send(signal.SIGKILL)
    assert asleep.is_gone_within(10)
    ignored = int(lines["SigIgn"], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT))
    assert int(lines["SigBlk"], 16) == 0


def test_a_reused_pid_gets_no_signal(tmp_path: Path) -> None:
    stranger = sleeper(tmp_path / "log")
    ours = replace(stranger, birth="another boot 12345")
    assert not ours.is_alive
    ours.send(signal.SIGKILL)
    assert stranger.is_alive
    stranger.send(signal.SIGKILL)
    assert stranger.is_gone_within(10)


def test_a_zombie_counts_as_ended(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log", "pass")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert birth_of(process.pid) is None
    assert not process.is_alive


LEADERLESS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ends one thread by its system call")
def test_a_process_without_its_main_thread_is_alive(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log", LEADERLESS)
    stat = Path(f"/proc/{process.pid}/stat")
    while ") Z" not in stat.read_text():
        assert process.is_alive
    assert process.is_alive
    process.send(signal.SIGKILL)
    assert process.is_gone_within(10)


def test_an_unused_pid_has_no_start_time() -> None:
    assert birth_of(2**22 + 1) is None
    assert not Process(2**22 + 1, "").is_alive


def test_a_missing_program_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn([str(tmp_path / "nothing")], tmp_path / "log", os.environ)
