"""Draws docs/lifecycle.svg and writes the tables of docs/lifecycle.md from model/lifecycle.py.
`python -m scripts.lifecycle` after a change; a test compares."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from holdfast.model.lifecycle import IN_PLACE, REQUESTS, TRANSITIONS, State
from scripts.generated import fill_in

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lifecycle.md"
PICTURE = ROOT / "docs" / "lifecycle.svg"

# Where each state stands; everything else follows from the table of transitions.
PLACES = {
    State.QUEUED: (110, 240), State.RUNNING: (500, 240), State.SUCCEEDED: (880, 100), State.FAILED: (880, 240),
    State.CANCELLED: (800, 440), State.PAUSED: (390, 440),
}  # fmt: skip
WIDTH, HEIGHT, BOX, TALL = 980, 600, 130, 44
BENDS = {  # how far an arrow leaves the straight line, to the left of its direction; where two would lie on each other
    (State.QUEUED, State.RUNNING): 34, (State.RUNNING, State.QUEUED): 34,
    (State.QUEUED, State.PAUSED): 10, (State.PAUSED, State.QUEUED): 34,
    (State.FAILED, State.QUEUED): -90, (State.CANCELLED, State.QUEUED): 200, (State.QUEUED, State.CANCELLED): 0,
    (State.PAUSED, State.CANCELLED): 0, (State.RUNNING, State.CANCELLED): 20, (State.RUNNING, State.PAUSED): -12,
}  # fmt: skip
ALONG = {
    (State.QUEUED, State.CANCELLED): 0.72,
    (State.QUEUED, State.PAUSED): 0.6,
}  # where its words stand; else half-way
WHO = {
    "claim": "worker", "expire": "watchdog", "succeed": "worker", "fail": "worker", "reschedule": "worker",
    "release": "worker", "park": "worker", "stop": "worker", "rescue": "watchdog", "pause": "people",
    "resume": "people", "cancel": "people", "retry": "people",
}  # fmt: skip


def arrows() -> dict[tuple[State, State], list[str]]:
    """From, to -> the verbs that lead there."""
    found: dict[tuple[State, State], list[str]] = {}
    for verb, (before, after) in TRANSITIONS.items():
        for one in sorted(before):
            for other in sorted(after):
                found.setdefault((one, other), []).append(verb)
    return found


def picture() -> str:
    drawn = [_arrow(one, other, verbs) for (one, other), verbs in arrows().items()]
    parts = [line for line, _ in drawn] + [label for _, label in drawn] + [_box(state) for state in State]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="14" role="img" aria-label="States of a job and the verbs between them">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _box(state: State) -> str:
    x, y = PLACES[state]
    colour = {"queued": "#e8eefc", "running": "#fdf3d8", "succeeded": "#e0f4e4", "failed": "#fbe3e1"}.get(
        state, "#eeeeee"
    )
    return (
        f'<rect x="{x - BOX / 2:g}" y="{y - TALL / 2:g}" width="{BOX}" height="{TALL}" rx="8" fill="{colour}" '
        f'stroke="#444"/><text x="{x}" y="{y + 5}" text-anchor="middle" font-weight="bold" fill="#222">{state}</text>'
    )


def _arrow(one: State, other: State, verbs: list[str]) -> tuple[str, str]:
    """The line, and the words on it."""
    (x1, y1), (x2, y2) = PLACES[one], PLACES[other]
    length = math.hypot(x2 - x1, y2 - y1)
    bend = 2 * BENDS.get((one, other), 0)
    cx, cy = (x1 + x2) / 2 + bend * (y2 - y1) / length, (y1 + y2) / 2 - bend * (x2 - x1) / length
    sx, sy = _edge(x1, y1, cx, cy)
    ex, ey = _edge(x2, y2, cx, cy)
    at = ALONG.get((one, other), 0.5)
    mx, my = ((1 - at) ** 2 * s + 2 * at * (1 - at) * c + at**2 * e for s, c, e in ((sx, cx, ex), (sy, cy, ey)))
    line = f'<path d="M{sx:.1f} {sy:.1f}Q{cx:.1f} {cy:.1f} {ex:.1f} {ey:.1f}" fill="none" stroke="#777" '
    return line + 'marker-end="url(#tip)"/>', _label(mx, my, verbs)


def _label(x: float, y: float, verbs: list[str]) -> str:
    lines = [", ".join(verbs[at : at + 3]) for at in range(0, len(verbs), 3)]
    rows = "".join(f'<tspan x="{x:.1f}" dy="{16 if at else 0}">{escape(line)}</tspan>' for at, line in enumerate(lines))
    top = y + 5 - 8 * (len(lines) - 1)
    place = f'x="{x:.1f}" y="{top:.1f}" text-anchor="middle"'
    # Twice: a white outline first, so that no line runs through the words.
    outline = f'<text {place} fill="#fff" stroke="#fff" stroke-width="6" stroke-linejoin="round">{rows}</text>'
    return f'{outline}<text {place} fill="#222">{rows}</text>'


def _edge(x: float, y: float, towards_x: float, towards_y: float) -> tuple[float, float]:
    """Where the line to that point leaves the box around x, y."""
    dx, dy = towards_x - x, towards_y - y
    scale = min(BOX / 2 / abs(dx) if dx else math.inf, TALL / 2 / abs(dy) if dy else math.inf)
    return x + dx * scale, y + dy * scale


def tables() -> str:
    lines = ["| verb | by | from | to |", "|---|---|---|---|"]
    for verb, (before, after) in TRANSITIONS.items():
        asked = "; while running: a request" if verb in REQUESTS else ""
        lines.append(f"| {verb} | {WHO[verb]} | {_names(before)}{asked} | {_names(after)} |")
    lines += ["", "Verbs that move nothing:", "", "| verb | possible while |", "|---|---|"]
    lines += [f"| {verb} | {_names(states)} |" for verb, states in IN_PLACE.items()]
    return "\n".join(lines)


def _names(states: frozenset[State]) -> str:
    return ", ".join(state for state in State if state in states)


def main() -> None:
    PICTURE.write_text(picture())
    PAGE.write_text(fill_in(PAGE.read_text(), "transitions", tables()))


if __name__ == "__main__":
    main()
