"""Runs the example notebook, docs/notebook.ipynb, and writes what its cells show into it.

python docs/run_notebook.py      needs no Jupyter
"""

import ast
import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"
Outputs = list[dict[str, Any]]


def outputs_of(code: str, names: dict[str, object]) -> Outputs:
    """What a cell prints, and what its last line is worth, as a notebook keeps them."""
    tree = ast.parse(code)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(last, "<cell>", "eval"), names)
    found: Outputs = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        found.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        shown = {
            name: text.splitlines(keepends=True) for name, text in _shown(value).items()
        }
        found.append({"data": shown, "metadata": {}, "output_type": "execute_result"})
    return found


def _shown(value: Any) -> dict[str, str]:
    """A value as text, and as HTML where it has some."""
    if "_repr_html_" not in dir(value):
        return {"text/plain": repr(value)}
    return {
        "text/html": value._repr_html_(),
        "text/plain": f"<{type(value).__name__}>",
    }


def run(notebook: dict[str, Any]) -> list[Outputs]:
    """The outputs of every code cell, in order."""
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            outputs_of("".join(cell["source"]), names)
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
        ]


def main() -> None:
    """Run it and keep what it shows."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for k, (cell, outputs) in enumerate(zip(cells, run(notebook), strict=True)):
        cell["execution_count"] = k + 1
        for each in outputs:
            if each["output_type"] == "execute_result":
                each["execution_count"] = k + 1
        cell["outputs"] = outputs
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
