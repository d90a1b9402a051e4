"""Write SVG charts: bars of ratios and lines of costs. The output is deterministic."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

INK, FAINT, GOOD, FAIR, POOR = "#33383f", "#c9ced6", "#2e9e6b", "#d98a1f", "#c2413b"
PALETTE: Final = ("#3b82c4", "#2e9e6b", "#d98a1f", "#c2413b", "#7a5bb0", "#5c6672")
_FONT: Final = "font-family='sans-serif' font-size='12'"


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio with its floor, goal and spread."""

    label: str
    value: float
    low: float
    high: float
    floor: float
    goal: float
    colour: str
    told: str


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points."""

    label: str
    points: Sequence[tuple[float, float]]


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Draw bars on a logarithmic scale."""
    width, left, right, top, step = 860, 330, 90, 54, 34
    ends = [value for row in rows for value in (row.value, row.low, row.floor, row.goal) if value > 0]
    least, most = min([*ends, 0.5]) / 1.3, max([*ends, 2.0]) * 1.3
    span = math.log(most / least)

    def x(value: float) -> float:
        return left + (width - left - right) * math.log(max(value, least) / least) / span

    drawn = [_text(left, 22, title, size=14, anchor="start")]
    bottom = top + step * len(rows)
    for tick in (each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if least < each < most):
        drawn.append(_line(x(tick), top - 8, x(tick), bottom, INK if tick == 1 else FAINT))
        drawn.append(_text(x(tick), bottom + 16, f"{tick:g}x", anchor="middle"))
    for number, row in enumerate(rows):
        y = top + step * number
        drawn += [
            _text(left - 10, y + 14, row.label, anchor="end"),
            _box(left, y, x(row.value) - left, 18, row.colour),
            _line(x(row.low), y + 9, x(row.high), y + 9, INK),
            _line(x(row.floor), y - 4, x(row.floor), y + 22, POOR, 2),
            _line(x(row.goal), y - 4, x(row.goal), y + 22, GOOD, 2),
            _text(_beside(x, row) + 8, y + 14, row.told, anchor="start"),
        ]
    legend = "red mark: floor; green mark: goal; thin line: lowest to highest round"
    drawn.append(_text(left, bottom + 38, legend, colour="#5c6672"))
    return _page(width, bottom + 52, title, drawn)


def _beside(x: Callable[[float], float], row: Bar) -> float:
    """Return a free position for a label, right of the bar and its marks."""
    place = max(x(row.value), x(row.high))
    for mark in sorted((x(row.floor), x(row.goal))):
        if place < mark < place + 60:
            place = mark
    return place


def lines(title: str, across: str, up: str, courses: Sequence[Line], *, logarithmic: bool = False) -> str:
    """Draw lines from zero, so that a flat series looks flat."""
    width, height, left, right, top, foot = 860, 380, 70, 190, 50, 56
    xs = [x for course in courses for x, _ in course.points]
    most = max(y for course in courses for _, y in course.points) * 1.1
    least, last = min(xs), max(xs)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        share = (point[0] - least) / (last - least or 1)
        if logarithmic:
            share = math.log(point[0] / least) / (math.log(last / least) or 1)
        return left + (width - left - right) * share, height - foot - (height - top - foot) * point[1] / most

    drawn = [_text(left, 22, title, size=14, anchor="start")]
    for tick in _ticks(most):
        y = place((least, tick))[1]
        drawn += [_line(left, y, width - right, y, FAINT), _text(left - 8, y + 4, f"{tick:g}", anchor="end")]
    for tick in dict.fromkeys(xs):
        drawn.append(_text(place((tick, 0))[0], height - foot + 18, f"{tick:,.0f}", anchor="middle"))
    drawn += [_text(left, height - 12, across, anchor="start"), _text(left, 42, up, anchor="start", colour="#5c6672")]
    ends = sorted((place(course.points[-1])[1], number) for number, course in enumerate(courses))
    labels: dict[int, float] = {}
    for y, number in ends:
        labels[number] = max(y + 4, max(labels.values(), default=0) + 15)
    for number, course in enumerate(courses):
        colour = PALETTE[number % len(PALETTE)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, course.points))
        drawn.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.5'/>")
        drawn += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>" for x, y in map(place, course.points)]
        drawn.append(_text(width - right + 10, labels[number], course.label, colour=colour, anchor="start"))
    return _page(width, height, title, drawn)


def _ticks(most: float) -> list[float]:
    """Return four to nine round axis values from zero."""
    size = 10 ** math.floor(math.log10(most))
    step = next(size * part for part in (0.1, 0.2, 0.5, 1, 2) if most / (size * part) < 9)
    return [round(number * step, 10) for number in range(int(most / step) + 1)]


def _page(width: int, height: int, title: str, drawn: Sequence[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' "
        f"aria-label='{escape(title, quote=True)}' {_FONT}>"
    )
    return "\n".join([head, f"<rect width='{width}' height='{height}' fill='white'/>", *drawn, "</svg>", ""])


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", colour: str = INK) -> str:
    look = f"font-size='{size}' text-anchor='{anchor}' fill='{colour}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {look}>{escape(words)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' stroke-width='{width:g}'/>"


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 1):.1f}' height='{height:.1f}' fill='{colour}'/>"
