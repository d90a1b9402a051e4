"""Installing a lock: with uv, and with pip where uv fails."""

from pathlib import Path

import pytest
from prepare import DEMO_LOCK, FULL_LOCK, Checkout
from progress import Step
from python_packages import PipProgress, entry_of, install_packages, split, uv_settings

from strandline.errors import SetupError
from tests.scripts.fake_checkout import DEMO, FULL, calls, make_checkout, use_python


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path)


def install(checkout: Checkout, lock: str = DEMO_LOCK) -> list[str]:
    install_packages(checkout.environment, checkout.root / lock, checkout.root / FULL_LOCK)
    return calls(checkout)


def test_uv_installs_wheels_then_pyspark_then_this_package(checkout: Checkout) -> None:
    uv, wheels, source, package = install(checkout)
    assert uv.startswith("pip ")
    assert "--require-hashes" in uv
    assert wheels.startswith("uv pip install ")
    assert "--require-hashes" in wheels
    assert "--no-deps" in wheels
    assert "backends.lock" in wheels
    assert wheels.endswith("wheels.lock")
    assert "--require-hashes" in source
    assert "--config-settings-package pyspark:--build-option=--compression=stored" in source
    assert source.endswith("source.lock")
    assert package.endswith(f"--no-build-isolation -e {checkout.root}")
    assert "pyspark" not in (checkout.venv / "wheels.lock").read_text()
    assert (checkout.python.parent / "indexes").read_text().splitlines() == ["simple"] * 3


@pytest.mark.parametrize("failing", ["get_uv", "uv"])
def test_pip_installs_what_uv_could_not(checkout: Checkout, failing: str, capsys: pytest.CaptureFixture[str]) -> None:
    use_python(checkout, **{failing: "echo error: no such platform; exit 1"})
    backends, lock, package = install(checkout)[-3:]
    assert backends.startswith("pip ")
    assert "--require-hashes" in backends
    assert backends.endswith("backends.lock")
    assert "--require-hashes" in lock
    assert "--no-deps" in lock
    assert lock.endswith(DEMO_LOCK)
    assert package.endswith(f"--no-deps --no-build-isolation -e {checkout.root}")
    assert "error: no such platform" in capsys.readouterr().err


def test_a_failed_install_shows_pips_last_lines(checkout: Checkout) -> None:
    use_python(checkout, uv="exit 1", pip="echo no route to host; exit 1")
    with pytest.raises(SetupError, match="could not be installed") as refused:
        install(checkout)
    assert "no route to host" in refused.value.detail


def test_one_entry_of_the_lock_has_its_hashes() -> None:
    assert entry_of("setuptools", FULL) == ("setuptools==84.2.1 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n")
    with pytest.raises(SetupError, match="no entry for wheel"):
        entry_of("wheel", FULL)


def test_a_lock_is_split_into_wheels_and_pyspark() -> None:
    wheels, source = split(DEMO)
    assert wheels + source == DEMO
    assert source.startswith("pyspark==4.2.1")


def test_uv_is_told_what_pip_is_configured_with() -> None:
    pip = """:env:.timeout='60'
global.cert='/etc/certs.crt'
global.extra-index-url='\\none\\ntwo'
global.index-url='simple'
global.no-index='true'
global.proxy='proxy:3128'
global.timeout='5'
global.trusted-host='a b'
install.find-links='/opt/wheels'
"""
    assert uv_settings(pip, {}) == (
        ["--no-index"],
        {
            "UV_DEFAULT_INDEX": "simple",
            "UV_INDEX": "one two",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_FIND_LINKS": "/opt/wheels",
            "UV_INSECURE_HOST": "a b",
            "UV_HTTP_TIMEOUT": "60",
            "SSL_CERT_FILE": "/etc/certs.crt",
            "ALL_PROXY": "proxy:3128",
        },
    )


def test_settings_for_uv_itself_take_precedence_over_pips() -> None:
    assert uv_settings("global.index-url='simple'\n", {"UV_INDEX_URL": "other"}) == ([], {})
    assert uv_settings("global.cert='one'\n", {"SSL_CERT_FILE": "other"}) == ([], {})
    assert uv_settings("WARNING: something else\nglobal.cert=unquoted\n", {}) == ([], {})


def test_pips_output_becomes_a_count_and_a_name() -> None:
    step = Step("packages")
    progress = PipProgress(step, total=57)
    for line in ("Collecting polars==2.1.0 (from -r lock (line 1))", "  Downloading polars.whl", "Collecting numpy==2"):
        progress.on_line(line)
    assert step.at == "2 of 57: numpy"
    progress.on_line("Building wheel for pyspark (pyproject.toml): started")
    assert step.at == "building pyspark"
