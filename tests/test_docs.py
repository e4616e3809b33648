"""Every Python block of the README and the docs runs; the README's commands exist and .ci/run
uses them.
"""

import re
import runpy
import shlex
import sys
from pathlib import Path
from shutil import copytree
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
    "run networks/digits-mlp": ["--rounds", "5", "--runs", "1", "--jobs", "1"],
    "fit": ["--method", "paper", "--rounds", "5"],
    "compare": ["--method", "paper", "--rounds", "5"],
    "compare over seeds": ["--rounds", "5", "--seeds", "2", "--jobs", "1"],
    "federation demo": ["--nodes", "2", "--rounds", "1"],
}


OVER_SEEDS = {"--few", "--seeds"}

# real processes, which tests/federation/test_real_processes.py has too
SLOW = dict.fromkeys(("docs/digits.md", "docs/federation.md"), pytest.mark.slow)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=SLOW.get(page, ()))
        for page, commands in COMMANDS.items()
        if commands
    ],
)
def test_commands(page, demo, brief_descents, tmp_path, monkeypatch, capsys):
    """A page's commands run as they stand, one after the other in one folder, but for fewer
    rounds and steps, one small figure of all, and demos, which are made once for all pages.
    """
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS[page]:
        words = [{"all": "fig5"}.get(word, word) for word in shlex.split(command)[1:]]
        kind = "compare over seeds" if OVER_SEEDS & {*words} else " ".join(words[:2])
        less = LESS.get(kind, LESS.get(words[0], []))
        if words[0] == "demo":
            copytree(demo, words[2] if words[1:] else "persfl-demo")
            continue
        assert main(words + (less if len(words) > 1 else [])) == 0, command
        assert capsys.readouterr().out, command


def test_there_are_blocks():
    assert len(BLOCKS) >= 20
    assert sum(map(len, COMMANDS.values())) >= 10


@pytest.mark.parametrize("code", BLOCKS)
def test_block(code, demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "persfl-demo" in code:
        copytree(demo, "persfl-demo")
    with patch.dict(METHODS):  # a page may add one of its own
        exec(compile(code, "block", "exec"), {"__name__": "block"})


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name
)
def test_example(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert printed(example, monkeypatch, capsys)


def printed(script, monkeypatch, capsys, *words):
    """The lines of a program that runs in this process."""
    monkeypatch.setattr(sys, "argv", [script.name, *words])
    runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["front", "networks", "federation"])
def test_the_benchmarks_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = ROOT / "benchmarks" / f"{name}.py"
    assert len(printed(script, monkeypatch, capsys, "--quick")) >= 2


@pytest.mark.slow
def test_the_benchmark_of_the_core_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = printed(ROOT / "benchmarks" / "core.py", monkeypatch, capsys, "--quick")
    assert sum("ratio" in line for line in said) == 3


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_front_page_says_what_it_is_for_in_100_words():
    front = (ROOT / "docs" / "index.md").read_text()
    says = front.split("# persfl")[1].split("![")[0]
    assert len(says.split()) <= 100
    # what its own words mean, where they first occur
    assert "**Blend**" in says
    assert "**Kin**" in says


def test_long_lines_of_code_fold_instead_of_being_cut():
    assert (
        "white-space: pre-wrap" in (ROOT / "docs" / "assets" / "extra.css").read_text()
    )


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
