"""Make a checkout whose environment records what it was asked to install, and installs nothing."""

from pathlib import Path

from prepare import DEMO_LOCK, FULL_LOCK, Checkout

DEMO = """polars==2.1.0 \\
    --hash=sha256:aa
    # via strandline
pyspark==4.2.1 \\
    --hash=sha256:dd
    # via strandline
"""
FULL = (
    DEMO
    + """setuptools==84.2.1 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via strandline
uv==0.13.8 \\
    --hash=sha256:ee
    # via strandline
uv-build==0.13.6 \\
    --hash=sha256:ff
    # via strandline
"""
)

# Both programs write down their arguments. The Python tells its version, and makes the uv when pip is to install it.
PYTHON = """#!/bin/sh
cd "$(dirname "$0")"
if [ "$1" = -c ]; then echo 3.11; exit; fi
case "$*" in
  *"pip config list"*) echo "global.index-url='simple'"; exit;;
  *"pip --version"*) exit;;
esac
echo pip "$@" >> calls
case "$*" in
  *--only-binary*) cp uv.sh uv; {get_uv};;
  *) {pip};;
esac
"""
UV = """#!/bin/sh
cd "$(dirname "$0")"
echo uv "$@" >> calls
echo "$UV_DEFAULT_INDEX" >> indexes
{uv}
"""


def make_checkout(root: Path) -> Checkout:
    """Make a checkout whose installers succeed."""
    (root / FULL_LOCK).write_text(FULL)
    (root / DEMO_LOCK).write_text(DEMO)
    (root / "pyproject.toml").write_text("[project]")
    checkout = Checkout(root)
    use_python(checkout)
    return checkout


def use_python(checkout: Checkout, *, get_uv: str = "true", uv: str = "true", pip: str = "true") -> None:
    """Replace the environment's programs; each option is what one of them does after it was recorded."""
    programs = checkout.python.parent
    programs.mkdir(parents=True, exist_ok=True)
    for name, text in (("python", PYTHON.format(get_uv=get_uv, pip=pip)), ("uv.sh", UV.format(uv=uv))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)


def calls(checkout: Checkout) -> list[str]:
    """Return the arguments of every call of pip and uv."""
    file = checkout.python.parent / "calls"
    return file.read_text().splitlines() if file.exists() else []
