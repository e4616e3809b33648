"""Every Python block of the README and the docs runs; the README's commands exist and .ci/run
uses them.
"""

import atexit
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import chdir
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from unittest.mock import patch

import pytest

from persfl.cli import main
from persfl.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCKS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    )
]


COMMANDS = {
    str(page.relative_to(ROOT)): [
        line.split(" #")[0].strip()
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M)
        for line in block.splitlines()
        if line.startswith("persfl ")
    ]
    for page in PAGES
}
LESS = {
    "reproduce": ["--rounds", "5", "--runs", "2", "--jobs", "1"],
    "run": ["--rounds", "5", "--runs", "2", "--jobs", "1"],
    "fit": ["--method", "paper", "--rounds", "5"],
    "compare": ["--method", "paper", "--rounds", "5"],
    "federation demo": ["--nodes", "3", "--rounds", "1"],
}


@cache
def demo():
    """What `persfl demo` leaves; many pages begin with it, and it is the same each time."""
    folder = Path(mkdtemp())
    atexit.register(rmtree, folder, ignore_errors=True)
    with chdir(folder):
        assert main(["demo"]) == 0
    return folder / "persfl-demo"


# real processes, which tests/federation/test_real_processes.py has too
SLOW = {"docs/federation.md": pytest.mark.slow}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=SLOW.get(page, ()))
        for page, commands in COMMANDS.items()
        if commands
    ],
)
def test_commands(page, tmp_path, monkeypatch, capsys):
    """A page's commands run as they stand, one after the other in one folder, but for fewer
    rounds and one small figure of all.
    """
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS[page]:
        words = [{"all": "fig5"}.get(word, word) for word in shlex.split(command)[1:]]
        less = LESS.get(" ".join(words[:2]), LESS.get(words[0], []))
        if words == ["demo"]:
            copytree(demo(), "persfl-demo")
            continue
        assert main(words + (less if len(words) > 1 else [])) == 0, command
        assert capsys.readouterr().out, command


def test_there_are_blocks():
    assert len(BLOCKS) >= 20
    assert sum(map(len, COMMANDS.values())) >= 10


@pytest.mark.parametrize("code", BLOCKS)
def test_block(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with patch.dict(METHODS):  # a page may add one of its own
        exec(compile(code, "block", "exec"), {"__name__": "block"})


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name
)
def test_example(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "core.py", "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PERSFL_COMPILED": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ratio") == 3


@pytest.mark.slow
@pytest.mark.parametrize("script", ["front", "networks", "federation"])
def test_the_other_benchmarks_run(script, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / f"{script}.py", "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_ci_runs_the_readmes_test_command():
    commands = re.findall(
        r"^```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), re.S | re.M
    )
    assert [command for command in commands if command.endswith("pytest")] == [
        commands[1]
    ]
    assert all("\n" not in command and "venv" in command for command in commands[:2])


def test_the_map_of_the_house_names_files_that_are_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`(?:src/persfl/)?([\w/]+(?:\.py|/))`", page)
    at_home = {path.name for path in (ROOT / "src" / "persfl").rglob("*.py")}
    found = [
        name
        for name in named
        if (ROOT / "src" / "persfl" / name).exists()
        or (ROOT / name).exists()
        or name in at_home
    ]
    assert len(named) > 50
    assert sorted(set(named) - set(found)) == []
