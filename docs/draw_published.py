"""Puts our numbers beside published ones into docs/comparing.md, and draws docs/published.png.

python docs/draw_published.py results.json     what persfl run published has left
"""

import json
import sys
from pathlib import Path

from draw_digits import filled

from persfl.lab.published_page import best_of, digits, draw_published, split_means
from persfl.lab.published_runs import Published, Scored, load_published

HERE = Path(__file__).parent


def row(one: Published, scored: list[Scored]) -> str:
    """A line of the table: our best, what blend has, the best that is published."""
    name, value = best_of(one, scored)
    found = split_means(one, scored)
    ours = {method: next(iter(by.values())) for method, by in found.items()}
    known = sorted(one.numbers, key=lambda number: one.sign * number[1])
    theirs = f"{known[0][0]} {digits(known[0][1])}" if known else "none verified"
    blend = digits(ours["blend"]) if "blend" in ours else ""
    alone = digits(ours["own"])
    cells = (one.title, one.metric, theirs, f"{name} {digits(value)}", blend, alone)
    return f"| {' | '.join(cells)} |"


def main(path: Path) -> None:
    """Fill the page, draw."""
    content = json.loads(path.read_text(encoding="utf-8"))
    scored = [Scored(**each) for some in content["sets"].values() for each in some]
    sets = [
        one for one in load_published("published")[2] if one.name in content["sets"]
    ]
    head = "| | number | best published | our best | blend | own rows alone |"
    lines = [head, "|---" * 6 + "|", *(row(one, scored) for one in sets)]
    page = HERE / "comparing.md"
    parts = {"published": "\n".join(lines)}
    page.write_text(filled(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
    draw_published(sets, scored).savefig(HERE / "published.png", dpi=90)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python docs/draw_published.py results.json")
    main(Path(sys.argv[1]))
