import ast
import subprocess
import sys
from pathlib import Path

import persfl


def test_public_names_are_pinned():
    assert persfl.__all__ == [
        "ArrayFleet",
        "Best",
        "BestOrStay",
        "Choice",
        "Data",
        "DeviceKFold",
        "Devices",
        "Estimator",
        "GradientStep",
        "LeaveDevicesOut",
        "Linear",
        "LoopFleet",
        "Nobody",
        "PersflError",
        "PersflWarning",
        "PersonalizedClassifier",
        "PersonalizedRegressor",
        "Refit",
        "Round",
        "SameCluster",
        "TopK",
        "Tree",
        "Trust",
        "Uniform",
        "Weighted",
        "kin",
        "personalize",
    ]
    assert all(hasattr(persfl, name) for name in persfl.__all__)


def test_importing_needs_no_extra():
    """Only numpy, scikit-learn and pandas (with what they bring) are needed to import and to
    run.
    """
    code = """
import importlib.util, sys
class Absent:
    def find_spec(self, name, *rest):
        optional = "numba matplotlib pyarrow torch flwr skops networkx tqdm safetensors"
        if name.split(".")[0] in optional.split():
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform, personalize
from persfl.sources import clustered_regression
fleet = ArrayFleet(clustered_regression(n=10), learner=Linear(), proposer=GradientStep(0.05))
print(len(list(personalize(fleet, sampler=Uniform(3), adopter=Best(), rounds=3))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "3", done.stderr


def test_nobody_reaches_into_another_package():
    """An attribute or name with an underscore belongs to the package that defines it."""
    root = Path(persfl.__file__).parent
    trees = {path: ast.parse(path.read_text()) for path in root.rglob("*.py")}
    rooms: dict[str, set[str]] = {}
    for path, tree in trees.items():
        rooms.setdefault(_room(path, root), set()).update(_defined(tree))
    found = [
        f"{path.relative_to(root)}: {name}"
        for path, tree in trees.items()
        for name in sorted(_used(tree) - rooms[_room(path, root)] - PUBLIC)
        if path.name not in BORDERS
    ]
    assert found == []


# Of named tuples, of os, a module, a type of argparse; and files that read the insides of
# scikit-learn and of Flower.
PUBLIC = {"_ActionsContainer", "_asdict", "_exit", "_fields", "_kernels", "_replace"}
PUBLIC |= {"_repr_html_"}  # of notebooks
BORDERS = {"flower_api.py", "plain_families.py", "reply_inbox.py", "sklearn_api.py"}


def _room(path, root):
    return path.relative_to(root).parts[0]


def _private(name):
    return name.startswith("_") and not name.endswith("__")


def _defined(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # of __slots__


def _used(tree):
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            used.update(one.name for one in node.names if _private(one.name))
    return used
