"""Fixtures of format tests: a schema registry."""

from collections.abc import Iterator

import pytest

from tests.formats.registries import FakeRegistry, serving


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with serving() as started:
        yield started
