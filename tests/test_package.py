import subprocess
import sys

import pytest

import persfl


def test_public_names_are_pinned():
    assert persfl.__all__ == [
        "ArrayFleet",
        "Best",
        "BestOrStay",
        "Choice",
        "Data",
        "Devices",
        "Estimator",
        "GradientStep",
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


@pytest.mark.slow
def test_compiling_says_so_once_and_is_kept(tmp_path):
    code = "from persfl.compiled import kernels; kernels()"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={"NUMBA_CACHE_DIR": str(tmp_path)},
        ).stderr
        for _ in range(2)
    ]
    assert "compiles its kernels once" in said[0]
    assert said[1] == ""
