"""The kernel is measured on few events: what it is able to is not the question here."""

from collections.abc import Iterator

import pytest

from strandline.advise import capacity


@pytest.fixture(autouse=True, scope="package")
def _measured_shortly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "ENOUGH", 2_000)
        yield
