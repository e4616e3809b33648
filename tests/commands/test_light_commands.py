"""Commands that read a run import little: scikit-learn alone takes longer than they may."""

import json
import subprocess
import sys

import pytest
from fitted_runs import rows

from persfl.cli import main

HEAVY = ["matplotlib", "numba", "scipy.cluster", "scipy.linalg", "scipy.optimize"]
HEAVY += ["scipy.spatial", "scipy.stats", "sklearn", "torch", "persfl.report"]
READ = """
import contextlib, io, json, sys
from persfl.cli import main
run, table = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["helpers", run]) == 0
    assert main(["predict", run, table]) == 0
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("method", ["paper", "blend"])
def test_helpers_and_predict_read_no_more_than_they_need(tmp_path, method):
    table = tmp_path / "rows.csv"
    rows(each=8).to_csv(table, index=False)
    words = ["fit", str(table), "--device", "who", "--label", "y", "--trials", "1"]
    made = ["--out", str(tmp_path / "run"), "--no-report", "--method", method]
    assert main([*words, *made]) == 0
    words = [sys.executable, "-c", READ, str(tmp_path / "run"), str(table)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert [name for name in HEAVY if name in loaded] == []
