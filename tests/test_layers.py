"""Imports point one way: a room may import itself and what stands to its left.

A room is a package or a module at the top of `persfl`. Imports inside functions count; those for
type checkers only (`if TYPE_CHECKING`) run nowhere and do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import persfl

SOURCE = Path(persfl.__file__).parent
# From left to right; inside a floor the order counts too.
FLOORS = [
    [
        "errors",
        "types",
        "checks",
        "device_checks",
        "terminal",
        "files",
        "folder_locks",
        "run_kinds",
        "_kernels",
        "kernel_cache",
        "compiled",
        "compact_protocol",
        "parquet",
        "formats",
        "spreadsheets",
    ],
    ["seeds", "batches", "traits", "devices", "units", "trust"],
    [
        "learners",
        "proposers",
        "samplers",
        "adopters",
        "sources",
        "datasets",
        "public_points",
        "number_marks",
        "column_checks",
        "encoding",
        "rules",
        "privacy",
    ],
    ["loop", "fleets"],
    ["wire", "training", "evaluation", "methods", "fitting", "tracking", "scale"],
    [
        "estimators",
        "exports",
        "runs",
        "report",
        "mlflow",
        "federation",
        "lab",
        "testing",
    ],
    ["commands", "cli", "__main__"],
]
ROOMS = [room for floor in FLOORS for room in floor]

# Documented paths that stay for those who use them: they only re-export, and nobody imports them.
OLD_PATHS = {
    "baselines",
    "blending",
    "comparing",
    "experiments",
    "fleets/flower",
    "helping",
    "public",
    "worth",
}

# What still points the wrong way, room by room: this list only gets shorter.
STILL: set[str] = set()


def files() -> Iterator[Path]:
    """Every source file that belongs to a room."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).with_suffix("").as_posix()
        if name != "__init__" and not is_old(name):
            yield path


def is_old(name: str) -> bool:
    return any(name == old or name.startswith(f"{old}/") for old in OLD_PATHS)


def imports(node: ast.AST) -> Iterator[str]:
    """What a file imports of the package, as a path below it, inside functions too."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.Import):
        modules = [name.name for name in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == "persfl":
        modules = [f"persfl.{name.name}" for name in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    else:
        modules = []
    for module in modules:
        if module.startswith("persfl."):
            yield module.removeprefix("persfl.").replace(".", "/")
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


@cache
def wrong_imports() -> set[str]:
    """`room imports module` for every import that does not point to the left."""
    place = {room: k for k, room in enumerate(ROOMS)}
    wrong = set()
    for path in files():
        room = path.relative_to(SOURCE).with_suffix("").parts[0]
        for name in imports(ast.parse(path.read_text())):
            other = name.split("/")[0]
            known = (SOURCE / other).is_dir() or (SOURCE / f"{other}.py").is_file()
            if not known or (other == room and not is_old(name)):
                continue
            if is_old(name) or place[other] > place[room]:
                wrong.add(f"{room} imports {name.replace('/', '.')}")
    return wrong


def test_every_room_is_on_the_list():
    rooms = {path.relative_to(SOURCE).with_suffix("").parts[0] for path in files()}
    assert rooms <= set(ROOMS)


def test_imports_point_to_the_left():
    assert wrong_imports() - STILL == set()


def test_what_is_mended_is_off_the_list():
    assert STILL - wrong_imports() == set()


def test_old_paths_define_nothing():
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for path in sorted(SOURCE.rglob("*.py")):
        if is_old(path.relative_to(SOURCE).with_suffix("").as_posix()):
            body = ast.parse(path.read_text()).body
            assert not [node for node in body if isinstance(node, kinds)], path
