"""Access to the dashboard, and what a page of another site can do: nothing."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from strandline.dashboard.security import COOKIE_SECONDS, HEADERS, Keys, load_or_create_key
from strandline.dashboard.server import Options
from strandline.errors import SetupError
from tests.dashboard.conftest import HOST, OURS, PORT, Served

Serve = Callable[..., Served]


@pytest.fixture
def served(serve: Serve, filled: Path) -> Served:
    return serve(filled)


def routes(served: Served) -> list[tuple[str, str]]:
    """Every route with every method that could be tried on it."""
    described = served.client.get("/api/openapi.json").json()["paths"]
    paths = [path.replace("{job}", served.id("well")).replace("{letter}", "x") for path in described]
    pages = ["/", "/static/app.js", "/static/vendor/uPlot.js", "/api/openapi.json", "/api/feed", "/nowhere"]
    return [(path, method) for path in [*paths, *pages] for method in ("GET", "POST", "DELETE")]


def test_without_a_cookie_every_request_is_refused(served: Served) -> None:
    stranger = TestClient(served.client.app, base_url=f"http://{HOST}")
    for path, method in routes(served):
        answer = stranger.request(method, path, headers=OURS)
        assert answer.status_code == 401, (method, path)
        assert "scores by team" not in answer.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "", f"127.0.0.1:{PORT}.evil.example"]
)
def test_with_another_host_name_every_request_is_refused(served: Served, host: str) -> None:
    for path, method in routes(served):
        answer = served.client.request(method, path, headers={**OURS, "host": host})
        assert answer.status_code == 403, (method, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"x-strandline": "1"},
        {**OURS, "origin": "http://evil.example"},
        {**OURS, "origin": "null"},
        {**OURS, "origin": f"http://127.0.0.1:{PORT + 1}"},
        {**OURS, "origin": f"https://{HOST}"},
        {"origin": f"http://{HOST}"},
        {**OURS, "sec-fetch-site": "cross-site"},
        {**OURS, "sec-fetch-site": "same-site"},
    ],
)
def test_a_page_of_another_site_can_change_nothing(served: Served, headers: dict[str, str]) -> None:
    for path, method in routes(served):
        if method != "GET":
            answer = served.client.request(method, path, headers=headers)
            assert answer.status_code == 403, (method, path)


def test_a_read_only_dashboard_changes_nothing(serve: Serve, filled: Path) -> None:
    served = serve(filled, read_only=True)
    answer = served.client.post(f"/api/jobs/{served.id('well')}/redrive", json={"letters": ["a"]}, headers=OURS)
    assert answer.status_code == 403
    assert "read-only" in answer.json()["error"]
    assert served.get("/jobs")["read_only"] is True


def test_a_link_works_once(served: Served) -> None:
    link = served.keys.link
    one, other = (TestClient(served.client.app, base_url=f"http://{HOST}") for _ in range(2))
    assert one.get(f"/enter?token={link}").status_code == 200
    assert one.get("/api/jobs").status_code == 200
    assert other.get(f"/enter?token={link}").status_code == 401
    assert other.get("/api/jobs").status_code == 401
    assert served.keys.link != link


@pytest.mark.parametrize("token", ["", "x", "é", "a" * 5000, "%00", "&token="])
def test_a_wrong_token_is_refused(served: Served, token: str) -> None:
    assert (
        TestClient(served.client.app, base_url=f"http://{HOST}").get("/enter", params={"token": token}).status_code
        == 401
    )


def test_the_cookie_is_hidden_from_scripts_and_other_sites(served: Served) -> None:
    answer = served.client.get(f"/enter?token={served.keys.link}").headers["set-cookie"].lower()
    assert "httponly" in answer
    assert "samesite=strict" in answer
    assert "path=/" in answer


def test_every_answer_forbids_foreign_code_and_frames(served: Served) -> None:
    for path in ("/", "/static/app.js", "/api/jobs", "/api/nowhere", "/enter?token=x"):
        answer = served.client.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
        assert answer.headers["cache-control"] == "no-store"
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_has_no_inline_script_or_style(served: Served) -> None:
    page = served.client.get("/").text
    assert "<style" not in page
    assert "onclick" not in page
    assert all('src="/static/' in line for line in page.splitlines() if "<script" in line)


@pytest.mark.parametrize(
    "change",
    [lambda cookie: cookie[:-1] + "x", lambda cookie: "9" + cookie, lambda _: "", lambda _: ".", lambda _: "é.1"],
)
def test_a_tampered_cookie_is_refused(change: Callable[[str], str]) -> None:
    keys = Keys(b"k" * 32, PORT)
    good = keys.signed_cookie(int(time.time()))
    assert keys.accepts(f"other=1; {keys.cookie}={good}")
    assert not keys.accepts(f"{keys.cookie}={change(good)}")


def test_cookies_expire_and_those_of_another_port_or_key_are_refused() -> None:
    keys = Keys(b"k" * 32, PORT)
    assert not keys.accepts(f"{keys.cookie}={keys.signed_cookie(int(time.time()) - COOKIE_SECONDS - 1)}")
    assert not keys.accepts(f"{keys.cookie}={keys.signed_cookie(int(time.time()) + 3600)}")
    assert not keys.accepts(f"{keys.cookie}={Keys(b'k' * 32, PORT + 1).signed_cookie(int(time.time()))}")
    assert not keys.accepts(f"{keys.cookie}={Keys(b'x' * 32, PORT).signed_cookie(int(time.time()))}")
    assert not keys.accepts("")


def test_the_key_is_kept_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    place = tmp_path / "data" / "dashboard.key"
    key = load_or_create_key(place)
    assert load_or_create_key(place) == key
    assert len(key) == 32
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "dashboard.key"
    load_or_create_key(place)
    place.chmod(0o644)
    with pytest.raises(SetupError, match="other users can read it"):
        load_or_create_key(place)


@pytest.mark.parametrize("bind", ["0.0.0.0", "192.168.1.5", "::", "example.org", ""])
def test_other_machines_are_not_served_without_tls(bind: str) -> None:
    with pytest.raises(SetupError, match="other machines") as refused:
        Options(bind=bind)
    assert "SSH tunnel" in refused.value.hint


def test_with_tls_other_machines_are_served(tmp_path: Path) -> None:
    assert Options(bind="0.0.0.0", certificate=tmp_path / "c", key=tmp_path / "k").encrypted
    assert not Options(bind="::1").encrypted


def test_files_outside_of_the_pages_are_not_served(served: Served) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd"):
        assert served.client.get(path).status_code in (404, 405), path
