"""The life cycle of a service, with a program that starts quickly."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.errors import ServiceError
from strandline.services import service as life
from strandline.services.loopback import HOST, free_ports
from strandline.services.processes import Process, birth_of, spawn
from strandline.services.service import Program, Service, Standing
from strandline.services.service_files import FILE
from tests.services.programs import ECHO, Echo

pytestmark = pytest.mark.slow

Make = Callable[..., Service]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Service] = []

    def one(program: Program | None = None, folder: str = "echo") -> Service:
        made.append(Service(program or Echo(), tmp_path / folder, leashed=True))
        return made[-1]

    yield one
    for each in made:
        each.kill()


def starts(service: Service) -> int:
    return int((service.folder / "data" / "starts").read_text())


def test_it_starts_answers_and_ends(make: Make) -> None:
    service = make()
    assert service.status().standing is Standing.ABSENT
    assert service.start()
    assert service.ready()
    assert service.status().standing is Standing.RUNNING
    assert service.address == f"echo://127.0.0.1:{service.port}"
    pid = service.pid
    assert pid is not None
    assert service.stop()
    assert birth_of(pid) is None
    assert service.status().standing is Standing.STOPPED
    assert not service.ready()


def test_a_second_start_finds_it_running(make: Make) -> None:
    service = make()
    service.start()
    pid = service.pid
    assert not service.start()
    assert not make().start()
    assert service.pid == pid
    assert starts(service) == 1


def test_a_second_start_on_another_port_is_refused(make: Make) -> None:
    service = make()
    service.start()
    with pytest.raises(ServiceError, match=f"already runs on port {service.port}"):
        service.start(service.port + 1)


def test_a_restart_keeps_port_and_data(make: Make) -> None:
    service = make()
    service.start()
    port = service.port
    for end in (service.stop, service.kill):
        assert end()
        assert service.start()
        assert service.port == port
    assert starts(service) == 3


def test_it_takes_the_port_it_is_given(make: Make) -> None:
    service = make()
    (port,) = free_ports(1)
    service.start(port)
    assert service.port == port


def test_a_port_that_is_taken_is_refused_before_anything_starts(make: Make) -> None:
    service = make()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} is taken"):
            service.start(port)
    assert service.status().standing is Standing.ABSENT


def test_if_its_last_port_is_taken_it_finds_another(make: Make) -> None:
    service = make()
    service.start()
    port = service.port
    service.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, port))
        taken.listen()
        service.start()
        assert service.port != port


def test_a_dead_service_is_detected_and_started_again(make: Make) -> None:
    service = make()
    service.start()
    pid = service.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert service.status().standing is Standing.DIED
    assert service.pid is None
    assert not service.stop()
    assert service.start()
    assert starts(service) == 2


def test_a_hanging_service_is_distinguished_from_a_working_one(make: Make) -> None:
    service = make()
    service.start()
    assert service.pid is not None
    os.kill(service.pid, signal.SIGSTOP)
    assert service.status().standing is Standing.SILENT
    os.kill(service.pid, signal.SIGCONT)
    assert service.status().standing is Standing.RUNNING


def test_a_record_of_a_reused_pid_signals_no_process(make: Make, tmp_path: Path) -> None:
    service = make()
    service.start()
    service.stop()
    stranger = spawn([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", os.environ)
    file = service.folder / FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": stranger.pid, "birth": "long ago"}))
    assert service.status().standing is Standing.DIED
    assert not service.stop()
    assert not service.kill()
    assert stranger.is_alive
    assert service.start()
    stranger.send(signal.SIGKILL)
    assert stranger.is_gone_within(10)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1, "pid": "x"}'])
def test_an_unreadable_record_counts_as_none(make: Make, text: str) -> None:
    service = make()
    service.folder.mkdir(parents=True)
    (service.folder / FILE).write_text(text)
    assert service.status().standing is Standing.ABSENT
    assert not service.stop()
    assert service.start()


def test_a_service_that_ends_at_once_shows_its_last_log_lines_and_a_hint(make: Make) -> None:
    service = make(Echo(script="print('I am hungry'); raise SystemExit(3)"))
    with pytest.raises(ServiceError, match="echo ended before it was ready") as refused:
        service.start()
    assert "I am hungry" in refused.value.detail
    assert refused.value.hint == "feed it"
    assert service.status().standing is Standing.STOPPED


def test_only_log_lines_of_this_start_are_shown(make: Make) -> None:
    with pytest.raises(ServiceError, match="hungry"):
        make(Echo(script="print('I am hungry')")).start()
    with pytest.raises(ServiceError) as refused:
        make(Echo(script="print('No space left on device')")).start()
    assert "hungry" not in refused.value.detail
    assert refused.value.hint.startswith("the disk is full")


def test_a_service_that_is_never_ready_is_stopped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "READY_WITHIN_SECONDS", 0.3)
    service = make(Echo(script="import os, time; print(os.getpid(), flush=True); time.sleep(600)"))
    with pytest.raises(ServiceError, match="was not ready"):
        service.start()
    assert birth_of(int(service.lines(1)[0])) is None
    assert service.pid is None


def test_a_service_that_ignores_the_stop_signal_is_killed(make: Make) -> None:
    service = make(Echo(stubborn=True))
    service.start()
    pid = service.pid
    assert pid is not None
    assert service.stop(within=0.2)
    assert birth_of(pid) is None


def test_stopping_a_service_that_was_never_started_does_nothing(make: Make) -> None:
    assert not make().stop()
    assert not make().kill()


def test_data_are_deleted_only_when_the_service_is_stopped(make: Make) -> None:
    service = make()
    service.start()
    with pytest.raises(ServiceError, match="still runs"):
        service.wipe()
    service.stop()
    service.wipe()
    assert not service.folder.exists()


def test_a_folder_without_a_service_record_is_never_deleted(make: Make) -> None:
    service = make()
    service.folder.mkdir(parents=True)
    (service.folder / "precious").touch()
    service.wipe()
    assert (service.folder / "precious").exists()


def test_folder_and_record_are_readable_by_their_owner_only(make: Make) -> None:
    service = make()
    service.start()
    for path in (service.folder, service.folder / FILE, service.log):
        assert path.stat().st_mode & 0o077 == 0


def test_a_service_that_was_never_started_has_no_address(make: Make) -> None:
    with pytest.raises(ServiceError, match="was never started"):
        _ = make().address


def test_the_log_can_be_followed_until_the_end(make: Make) -> None:
    talkative = ECHO.replace("connection.sendall", "print('heard', flush=True); connection.sendall")
    service = make(Echo(script=talkative))
    service.start()
    content = service.follow(1)
    first = next(content)
    assert first in ("listening\n", "heard\n")
    assert service.ready()
    service.stop()
    assert set("".join(content).split()) <= {"heard"}


def test_a_large_log_is_rotated_at_the_next_start(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make()
    service.start()
    service.stop()
    monkeypatch.setattr(life, "_LOG_IS_LARGE", 3)
    service.start()
    assert service.log.read_text() == "listening\n"
    assert service.log.with_suffix(".log.1").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent died")
def test_a_leashed_service_dies_with_its_parent(tmp_path: Path) -> None:
    words = (
        "import os, sys; from pathlib import Path; from strandline.services.service import Service;"
        "from tests.services.programs import Echo;"
        f"service = Service(Echo(), Path({str(tmp_path / 'echo')!r}), leashed=True); service.start();"
        "print(service.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    pid = int(ran.stdout)
    assert Process(pid, birth_of(pid) or "gone").is_gone_within(10)
