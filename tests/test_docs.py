"""Every page tells the truth: its Python runs, its links lead somewhere, and what is generated is up to date."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from strandline.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python( spark)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:`|^\$ )strandline ([a-z]+(?: [a-z]+)?)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> list[tuple[bool, str]]:
    """The Python of a page in order, and whether each block starts Spark."""
    return [(bool(spark), code) for spark, code in BLOCK.findall(page.read_text())]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(code: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


WITH_SPARK = [page for page in PAGES if any(spark for spark, _ in blocks(page))]
WITHOUT_SPARK = [page for page in PAGES if blocks(page) and page not in WITH_SPARK]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=named)
def test_the_code_on_a_page_without_spark_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run("\n".join(code for _, code in blocks(page)), tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_SPARK, ids=named)
def test_the_code_on_a_page_with_spark_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run("\n".join(code for _, code in blocks(page)), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_on_a_page_leads_to_a_file(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"], ids=named)
def test_every_command_that_a_page_names_is_there(page: Path) -> None:
    there: dict[str, Any] = getattr(get_command(app), "commands")  # noqa: B009 - Typer calls it a command, it is a group
    unknown = []
    for words in COMMAND.findall(page.read_text()):
        first, _, second = words.partition(" ")
        further = getattr(there.get(first), "commands", None)
        if first not in there or (second and further and second not in further):
            unknown.append(words)
    assert not unknown


@pytest.mark.slow
def test_every_public_name_is_on_the_page_of_names() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "names.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_what_the_generators_page_says_was_measured_is_what_it_gives() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generator.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_lateness_curve_is_drawn_by_what_advises() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "advise.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_counts_the_stories_right() -> None:
    stories = len([*(ROOT / "tests" / "transcripts").rglob("*.story.yaml")])
    assert f"[{stories} stories]" in (ROOT / "README.md").read_text()
