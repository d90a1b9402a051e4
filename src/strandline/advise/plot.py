"""Plot the lateness curve as SVG: completeness against watermark delay. Equal input gives an equal file."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from strandline.advise.report import Advice
from strandline.observe.number_format import duration

_INK, _FAINT, _BLUE, _GREEN, _GREY = "#33383f", "#d5dae1", "#3b82c4", "#2e9e6b", "#8a94a3"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _FOOT = 760, 400, 64, 24, 56, 60
_TICKS: Final = (
    (1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1_000, "1 s"), (10_000, "10 s"), (60_000, "1 min"),
    (600_000, "10 min"), (3_600_000, "1 h"), (36_000_000, "10 h"), (86_400_000, "1 d"), (864_000_000, "10 d"),
)  # fmt: skip
_SHARES: Final = (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)

Point = tuple[float, float]


def plot(advice: Advice) -> str:
    """Draw delays on a logarithmic x axis, and shares on a y axis that is logarithmic in what is missing."""
    late = advice.late
    span = _span(advice)
    title = (
        f"Lateness of {advice.sample.origin.name}: {late.window / 1000:g} s windows, {advice.sample.rows.height:,} rows"
    )
    drawn = [
        _text(_LEFT, 24, title, size=14),
        _text(_LEFT, 44, "share of elements in the on-time result", colour=_GREY),
    ]
    for share in _SHARES:
        y = _y(share)
        drawn += [
            _line(_LEFT, y, _WIDTH - _RIGHT, y, _FAINT),
            _text(_LEFT - 8, y + 4, f"{share * 100:g} %", anchor="end"),
        ]
    for delay, label in _TICKS:
        if span[0] <= delay <= span[1]:
            x = _x(delay, span)
            x_label = _text(x, _HEIGHT - _FOOT + 18, label, anchor="middle")
            drawn += [_line(x, _TOP, x, _HEIGHT - _FOOT, _FAINT), x_label]
    drawn.append(_text(_LEFT, _HEIGHT - 14, "delay of the watermark", colour=_GREY))
    drawn += [
        _course([(_x(delay, span), _y(behind)) for delay, _, behind in late.curve], _GREY, dashed=True),
        _course([(_x(delay, span), _y(need)) for delay, need, _ in late.curve], _BLUE),
    ]
    for wait in late.waits:
        x, y = _x(wait.delay, span), _y(wait.share)
        drawn.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{_GREEN}'/>")
        label = f"{wait.share * 100:g} %: {duration(wait.delay / 1000)}"
        near_the_end = x > 0.8 * _WIDTH
        drawn.append(
            _text(
                x - 8 if near_the_end else x + 8,
                y + (-6 if near_the_end else 14),
                label,
                anchor="end" if near_the_end else "start",
                colour=_GREEN,
            )
        )
    legend = "blue: windows of this size; grey, dashed: windows of any size"
    drawn.append(_text(_WIDTH - _RIGHT, _HEIGHT - 14, legend, size=10, anchor="end", colour=_GREY))
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
        f"aria-label='{escape(title, quote=True)}' font-family='sans-serif' font-size='12'>"
    )
    return "\n".join([head, f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>", *drawn, "</svg>", ""])


def _span(advice: Advice) -> tuple[float, float]:
    """Return the range of delays to draw: from a tenth of the shortest delay above zero to beyond the longest."""
    late = advice.late
    delays = [float(delay) for wait in late.waits for delay in (wait.delay, wait.behind) if delay > 0]
    return max(min(delays, default=10.0) / 10, 1.0), max([10.0, *(float(delay) for delay, _, _ in late.curve)]) * 1.4


def _x(delay: float, span: tuple[float, float]) -> float:
    least, most = span
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(max(delay, least) / least) / math.log(most / least)


def _y(share: float) -> float:
    """Map a share to the y axis: each further nine is one step up."""
    missing = min(max(1 - share, 0.00005), 1.0)
    return _HEIGHT - _FOOT - (_HEIGHT - _TOP - _FOOT) * math.log(missing) / math.log(0.00005)


def _course(points: Sequence[Point], colour: str, *, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = " stroke-dasharray='5 4'" if dashed else ""
    return f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.2'{dash}/>"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}'/>"


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = _INK) -> str:
    look = f"font-size='{size}' text-anchor='{anchor}' fill='{colour}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {look}>{escape(text)}</text>"
