"""No secret reaches a message, a log or a stored text, however a URL, an option or a header holds it."""

import io
import json
import logging
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import redaction
from strandline.errors import RunError, SetupError
from strandline.formats.http import InvalidHeader, send_request
from strandline.formats.secrets import secret
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.store import Store
from strandline.redaction import HIDDEN, SHORTEST, logger, redact, remember

PRINTED = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
SECRETS = st.text(PRINTED | st.sampled_from("é日\t \\\"'%@/&"), min_size=12, max_size=40).filter(
    lambda each: each == each.strip() and HIDDEN not in each
)
SAFE = st.text(st.sampled_from("abcXYZ0189-_~"), min_size=8, max_size=30)
REVEALED = {
    "as it is": "{}",
    "userinfo": "cannot open postgresql://me:{}@db.example.org/x now",
    "query": "GET https://example.org/a?token={}&x=1 failed",
    "path": "https://hooks.example.org/services/{}/end",
    "dsn": "host=db password='{}' user=me",
    "header": "{{'Authorization': 'Bearer {}'}}",
    "option": '{{"kafka.sasl.jaas.config": "Login required password=\\"{}\\";"}}',
}


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """Other tests of the process see no masked values of these."""
    yield
    redaction._known.clear()


@pytest.mark.parametrize("around", REVEALED.values(), ids=REVEALED)
@given(value=SECRETS)
def test_a_value_that_was_revealed_is_masked_wherever_it_stands(around: str, value: str) -> None:
    remember(value)
    spelled = [value, quote(value, safe=""), quote_plus(value), repr(value)[1:-1], json.dumps(value)[1:-1]]
    spelled += [repr(f"x{value}".encode())[3:-1], b64encode(value.encode()).decode()]
    for each in spelled:
        assert each not in redact(around.format(each))


@given(value=SECRETS, cut=st.integers(8, 40))
def test_a_value_that_was_cut_at_the_end_of_a_message_is_masked_too(value: str, cut: int) -> None:
    remember(value)
    assert value[:cut] not in redact(f"server said {value[:cut]}")


@given(value=SAFE)
def test_a_value_that_nobody_revealed_is_masked_where_secrets_stand(value: str) -> None:
    for text in (
        f"redis://:p0{value}@cache:6379/0", f"amqp://me:p0{value}@h", f"https://h/x?access_token=p0{value}&y=1",
        f"https://h/x?y=1&sig=p0{value}", f"https://h/?api_key=p0{value}", f"host=h password=p0{value} user=me",
        f"user=me sslpassword='p0{value}'", f"Authorization: Bearer p0{value}", f"b'Bearer p0{value}\\n'",
        f'PlainLoginModule required username="u" password="p0{value}";', f"aws_secret_access_key=p0{value}",
    ):  # fmt: skip
        assert f"p0{value}" not in redact(text), text
        assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        'leave it out, and use password="env:NAME"', 'use token="env:…", or headers', "PostgreSQL at me@db:5432/x",
        "https://example.org/panes?team=red&day=1", "Basic windows of Bearer tokens", "key=team, value=7",
        "http://127.0.0.1:4270/enter?token=aB3-xyz0123456789", "postgresql://me@db.example.org:5432/x",
        "3 rows: score=1 team='red'",
    ],
)  # fmt: skip
def test_texts_without_a_secret_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("kind", ["env", "file"])
def test_the_newline_at_the_end_of_a_secret_is_not_part_of_it(
    kind: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", f"s3cr3t-canary{ending}")
    (tmp_path / "token").write_text(f"s3cr3t-canary{ending}")
    assert secret("env:TOKEN" if kind == "env" else f"file:{tmp_path}/token").reveal() == "s3cr3t-canary"


def test_a_header_that_cannot_be_sent_is_refused_without_its_value() -> None:
    for value in ("Bearer s3cr3t-canary\nX: y", "Bearer s3cr3t-\u20ac"):
        with pytest.raises(InvalidHeader, match="the header Authorization") as refused:
            send_request("GET", "http://127.0.0.1:9/", {"Authorization": value}, None, 1)
        assert "s3cr3t" not in f"{refused.value!r}"


def test_errors_logs_and_stored_texts_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-canary")
    text = f"{secret('env:TOKEN').reveal()} refused"
    error = RunError(text, detail=text, hint=text)
    assert "canary" not in f"{error} {error!r} {error.message} {error.detail} {error.hint} {error.args}"
    with caplog.at_level(logging.INFO, "strandline"):
        logger("strandline.here").warning("%s", text)
        try:
            raise ValueError(text)
        except ValueError:
            logger("strandline.here").exception("failed: %s", text)
    assert "refused" in caplog.text
    assert "canary" not in caplog.text
    store = Store(tmp_path)
    store.start(1)
    store.event(2, "retry", text)
    store.alive(3, JobState.FAILED, text)
    store.close()
    assert b"refused" in (tmp_path / "metrics.db").read_bytes()
    assert b"canary" not in (tmp_path / "metrics.db").read_bytes()


def test_an_exception_is_masked_for_a_formatter_that_reads_it_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Json(logging.Formatter):
        """Formats the exception itself, as PySpark's formatter does."""

        def format(self, record: logging.LogRecord) -> str:
            assert record.exc_info is not None
            kind, problem, trace = record.exc_info
            return json.dumps({"class": kind and kind.__name__, "msg": str(problem), "has_trace": trace is not None})

    monkeypatch.setenv("TOKEN", "s3cr3t-canary")
    text = f"{secret('env:TOKEN').reveal()} refused"
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Json())
    log = logger("strandline.as_json")
    log.addHandler(handler)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
    finally:
        log.removeHandler(handler)
    assert json.loads(stream.getvalue()) == {"class": "ValueError", "msg": "*** refused", "has_trace": True}


def test_a_value_too_short_to_search_for_destroys_no_text() -> None:
    remember("e" * (SHORTEST - 1))
    assert redact("one tree eee") == "one tree eee"


def test_a_missing_secret_names_its_reference_only(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="the secret file:"):
        secret(f"file:{tmp_path}/none").reveal()
