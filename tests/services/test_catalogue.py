from pathlib import Path

import pytest

from strandline.errors import ServiceError
from strandline.services.catalogue import PROGRAMS, service, services_home


def test_every_service_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert {service(name, tmp_path).folder for name in PROGRAMS} == {tmp_path / name for name in PROGRAMS}


def test_an_unknown_service_is_refused_with_the_list_of_services(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="no service 'kafak'.*kafka, postgres, registry, valkey"):
        service("kafak", tmp_path)


def test_the_home_is_the_argument_then_the_environment_variable_then_the_users_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("STRANDLINE_SERVICES", raising=False)
    assert services_home() == tmp_path / ".local/share/strandline/services"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert services_home() == tmp_path / "data/strandline/services"
    monkeypatch.setenv("STRANDLINE_SERVICES", "~/here")
    assert services_home() == tmp_path / "here"
    assert services_home(Path("~/there")) == tmp_path / "there"
