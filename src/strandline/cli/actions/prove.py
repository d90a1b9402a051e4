"""Find and run the proofs of a checkout: `strandline prove`. They are not part of the installed package."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strandline.cli.actions.bench import find_checkout
from strandline.errors import SetupError


def prove_delivery(chosen: Mapping[str, Any], *, as_json: bool, campaign: bool, spark: bool, work: Path | None) -> int:
    """Kill jobs and check what readers see; return 0 if every guarantee holds."""
    sys.path.insert(0, str(find_checkout(Path.cwd())))
    try:
        from proof.main import Asked, main
    except ModuleNotFoundError as missing:
        raise SetupError(
            f"the proof needs {missing.name}", hint="install the checkout with its extra: pip install -e '.[dev]'"
        ) from None
    return main(Asked(**chosen, as_json=as_json, campaign=campaign, spark=spark, work=work))
