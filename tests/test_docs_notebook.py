"""The example notebook of the docs runs, and shows what a run of it gives."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NUMBER = re.compile(r"(\d+\.?\d*)")


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location(
        "run_notebook", DOCS / "run_notebook.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(outputs):
    """All that a cell shows, by kind."""
    shown = []
    for each in outputs:
        parts = each.get("data", {each.get("name"): each.get("text")})
        shown += [(kind, "".join(lines)) for kind, lines in sorted(parts.items())]
    return shown


def test_the_notebook_shows_what_a_run_gives(runner):
    """Words are the same; numbers may differ in what another processor rounds otherwise."""
    notebook = json.loads(runner.NOTEBOOK.read_text(encoding="utf-8"))
    kept = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    stale = "docs/notebook.ipynb is stale: python docs/run_notebook.py"
    for cell, outputs in zip(kept, runner.run(notebook), strict=True):
        before, now = texts(cell["outputs"]), texts(outputs)
        assert [kind for kind, _ in before] == [kind for kind, _ in now]
        for (_, old), (_, new) in zip(before, now, strict=True):
            assert NUMBER.sub("#", old) == NUMBER.sub("#", new), stale
            numbers = [list(map(float, NUMBER.findall(text))) for text in (old, new)]
            assert numbers[1] == pytest.approx(numbers[0], rel=0.05, abs=1.0), stale


def test_a_cell_shows_what_it_prints_and_its_last_line(runner):
    names = {}
    assert runner.outputs_of("a = 3", names) == []
    printed, value = runner.outputs_of("print('x')\na + 1", names)
    assert printed["text"] == ["x\n"]
    assert value["data"] == {"text/plain": ["4"]}
    assert runner.outputs_of("print", {"print": None}) == []
