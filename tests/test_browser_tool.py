"""`tools/browser` asks apt-get for exactly what a machine lacks. What it calls is a stand-in."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "browser"
FAMILIES = {"fonts-dejavu-core": "DejaVu Sans", "fonts-liberation": "Liberation Sans"}
BROWSER = {
    "chromium": "chromium",
    "chromium-driver": "chromedriver",
    "fontconfig": "fc-list",
}
# It knows a family if a file of that name lies beside it, as apt-get below leaves one.
FC_LIST = '[ ! -e "$(dirname "$0")/$1.ttf" ] || echo "$1"'
APT = """
    echo "$@" >> "$(dirname "$0")/asked"
    [ "$2" != install ] || for package in "${@:5}"; do
        case $package in PAIRS
        esac
    done
"""


def command(folder: Path, name: str, script: str = "exit 0") -> None:
    (folder / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
    (folder / name).chmod(0o755)


def put(package: str) -> str:
    """What a package brings, as a line of the stand-in for apt-get."""
    if package in FAMILIES:
        return f'touch "$(dirname "$0")/{FAMILIES[package]}.ttf"'
    name = BROWSER[package]
    script = FC_LIST if name == "fc-list" else "exit 0"
    lines = shlex.join([f"#!{shutil.which('bash')}", script])
    return (
        f'at="$(dirname "$0")/{name}"; printf "%s\\n" {lines} > "$at"; chmod +x "$at"'
    )


@pytest.fixture
def machine(tmp_path):
    """A function that makes a machine on which some packages are there, and runs the tool on it."""
    if not shutil.which("bash"):
        pytest.skip("no bash")
    for name in ("bash", "env", "dirname", "touch", "chmod"):
        (tmp_path / name).symlink_to(shutil.which(name))
    command(tmp_path, "id", "echo 0")

    def run(there, *, apt=True, required=False):
        for package in there:
            subprocess.run(
                ["bash", "-c", put(package), str(tmp_path / "any")], check=True
            )
        if apt:
            cases = "\n".join(
                f"{package}) {put(package)} ;;" for package in (*BROWSER, *FAMILIES)
            )
            command(tmp_path, "apt-get", APT.replace("PAIRS", cases))
        environment = {"PATH": str(tmp_path)} | (
            {"PERSFL_BROWSER": "required"} if required else {}
        )
        tool = [tmp_path / "bash", TOOL]
        done = subprocess.run(
            tool, env=environment, capture_output=True, text=True, check=False
        )
        asked = tmp_path / "asked"
        return done, asked.read_text().splitlines() if asked.exists() else []

    return run


@pytest.mark.parametrize(
    "there",
    [
        [],
        ["chromium", "chromium-driver"],
        ["chromium", "chromium-driver", "fontconfig", "fonts-dejavu-core"],
        ["fontconfig", "fonts-liberation"],
    ],
)
def test_what_is_missing_is_installed(machine, there):
    done, asked = machine(there, required=True)
    assert done.returncode == 0, done.stderr
    # Without fc-list nobody can tell which families are there.
    wanted = [each for each in (*BROWSER, *FAMILIES) if each not in there]
    assert [line.split()[1] for line in asked] == ["update", "install"]
    assert asked[1].split()[4:] == wanted


def test_nothing_is_done_where_all_is_there(machine):
    done, asked = machine([*BROWSER, *FAMILIES])
    assert (done.returncode, done.stderr, asked) == (0, "", [])


@pytest.mark.parametrize("required", [False, True])
def test_what_could_not_be_installed_is_named(machine, required):
    done, _ = machine([*BROWSER, "fonts-dejavu-core"], apt=False, required=required)
    assert done.returncode == required
    assert "fonts-liberation" in done.stderr
    assert "chromium" not in done.stderr


def test_the_tool_can_be_run():
    assert os.access(TOOL, os.X_OK)
