"""Render result rows: their origin, the table, and a list of missed goals."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.results import shown

STANDING: Final = {
    "goal": "goal reached",
    "floor": "above the floor",
    "below": "**below the floor**",
    "reported": "",
    "not measured": "not measured",
}


def source(told: dict[str, Any], file: str) -> str:
    """Render the origin of the numbers."""
    machine = told["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"Made from [{file}](../../benchmarks/results/{file}): `{told['command']}` at {told['commit']},\n"
        f"{machine['date']}. The machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB,\n"
        f"{machine['system']}, Python {machine['python']}, {machine['java']},\n{versions}.\n"
    )


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Render rows as a Markdown table."""
    lines_ = ["| against | ratio | lowest to highest | floor | goal | |", "|---|---|---|---|---|---|"]
    for row in rows:
        unit = row["unit"]
        spread = row["spread"]
        between = "–" if spread is None else f"{shown(spread['low'], unit)} to {shown(spread['high'], unit)}"
        floor, goal = bound(row), bound(row, "goal")
        standing = "failed" if row["failure"] else STANDING[row["reached"]]
        lines_.append(f"| {row['against']} | {shown(row['ratio'], unit)} | {between} | {floor} | {goal} | {standing} |")
    return "\n".join(lines_) + "\n"


def bound(row: dict[str, Any], name: str = "floor") -> str:
    """Format a floor or goal; where less is better it is an upper bound."""
    most = "≤ " if row["lower_is_better"] and row["floor"] is not None else ""
    return most + shown(row[name], row["unit"])


def short(rows: Iterable[dict[str, Any]], title: str) -> str:
    """List missed goals and failed rows in words."""
    said = []
    for row in rows:
        ratio, floor, goal = (shown(row[name], row["unit"]) for name in ("ratio", "floor", "goal"))
        wanted = "at most " if row["lower_is_better"] else ""
        if row["failure"]:
            said.append(f"- {row['against']}: no number, because a run failed ({row['failure']}).")
        elif row["reached"] == "below":
            said.append(f"- {row['against']}: {ratio}, and the floor is {wanted}{floor}. This is not good enough.")
        elif row["reached"] == "floor":
            said.append(f"- {row['against']}: {ratio} holds the floor of {floor}; the goal is {wanted}{goal}.")
        elif row["reached"] == "not measured":
            said.append(f"- {row['against']}: not measured.")
    return "\n".join([title, *(said or ["All goals are reached."]), ""])


def cells(told: Iterable[dict[str, Any]], checked: str) -> str:
    """Render all cells: rates, memory, and how much was checked."""
    lines = [f"| cell | events per CPU-second | events a second | peak memory | {checked} |", "|---|---|---|---|---|"]
    for cell in told:
        if "per_cpu_second" not in cell:
            lines.append(f"| {cell['name']} | failed | | | |")
            continue
        lines.append(
            f"| {cell['name']} | {cell['per_cpu_second']['median']:,.0f} | {cell['per_second']['median']:,.0f} | "
            f"{cell['peak_bytes'] / 2**30:.1f} GB | {cell.get('checked', {}).get('cells', '')} |"
        )
    return "\n".join(lines) + "\n"
