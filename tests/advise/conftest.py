"""Measure the kernel on few events: these tests do not need its real throughput."""

from collections.abc import Iterator

import pytest

from strandline.advise import capacity


@pytest.fixture(autouse=True, scope="package")
def _short_measurement() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "ENOUGH", 2_000)
        yield
