"""What other systems lack or read otherwise: nothing of it is needed to import or to fit."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import persfl

SOURCE = Path(persfl.__file__).parent
REPOSITORY = SOURCE.parents[1]

NUMBERS = [(who, k % 5, k % 3) for who in ("Zo\u00eb", "b", "c") for k in range(8)]
ROWS = "who,x,y\n" + "".join(f"{who},{x},{2 * x + z}\n" for who, x, z in NUMBERS)

# Modules and names that Windows has not; libraries have theirs before these go.
POSIX_ONLY = """
import importlib, multiprocessing, os, signal, subprocess, sys, tempfile, warnings
import joblib, numpy, pandas, scipy.stats, sklearn.linear_model, sklearn.pipeline
GONE = "fcntl resource pwd grp termios tty pty syslog readline".split()
for name in GONE:
    sys.modules[name] = None
names = "fork forkpty killpg getpgid setsid geteuid getuid getgid mkfifo O_NOFOLLOW O_NONBLOCK"
for name in (names + " O_DIRECTORY O_CLOEXEC sched_getaffinity").split():
    if name in vars(os):
        delattr(os, name)
for name in "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGQUIT".split():
    if name in vars(signal):
        delattr(signal, name)
"""


def run_as_elsewhere(code, folder):
    words = [sys.executable, "-c", POSIX_ONLY + code]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder)


def module_names():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        # kernels are compiled as they are imported; the leash is a program of its own
        if path.name not in ("__main__.py", "leash.py"):
            yield name.removesuffix(".__init__")


@pytest.mark.slow
def test_every_module_is_imported_without_what_windows_lacks(tmp_path):
    code = f"""
failed = []
for name in {list(module_names())!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        optional = isinstance(error, ImportError) and error.name not in GONE
        if not optional:
            failed.append((name, repr(error)))
print(failed)
"""
    done = run_as_elsewhere(code, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr + done.stdout


def test_a_fit_and_its_answers_without_what_windows_lacks(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    code = """
import types
from persfl.cli import main
locks = types.SimpleNamespace(LK_NBLCK=2, LK_UNLCK=0, locking=lambda *asked: None)
sys.modules["msvcrt"] = locks
fit = "fit rows.csv --device who --label y --method own --out run"
for words in (fit, "helpers run", "predict run rows.csv --out out.csv", "report run"):
    assert main(words.split()) == 0, words
"""
    done = run_as_elsewhere(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").is_file()
    assert "Zo\u00eb" in (tmp_path / "out.csv").read_text(encoding="utf-8")


def text_calls(tree):
    """Calls that read or write text and do not say how letters are written."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        method = isinstance(call.func, ast.Attribute)
        name = call.func.attr if method else getattr(call.func, "id", "")
        said = {word.arg for word in call.keywords}
        mode = next(
            (
                word.value
                for word in call.args
                if isinstance(word, ast.Constant)
                and isinstance(word.value, str)
                and re.fullmatch("[rwaxbt+]{1,3}", word.value)
            ),
            "",
        )
        text = name in ("read_text", "write_text")
        text = text or (name == "fdopen" and mode and "b" not in mode)
        text = text or (name == "open" and not method and "b" not in mode)
        if text and "encoding" not in said:
            yield call.lineno


@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir()))
def test_texts_are_utf8_wherever_they_are_read(room):
    """Without `encoding` Windows takes the letters of its own country."""
    place = SOURCE / room
    files = [place] if place.suffix == ".py" else place.rglob("*.py")
    found = []
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(SOURCE)}:{line}" for line in text_calls(tree)]
    assert found == []


def test_that_look_finds_what_it_looks_for():
    code = "open(p); open(p, 'w'); p.read_text(); os.fdopen(h, 'a'); open(p, 'rb')"
    assert len(list(text_calls(ast.parse(code)))) == 4


def test_names_of_files_that_every_system_takes():
    words = ["git", "ls-files", "-z", "-s"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=REPOSITORY)
    if done.returncode:
        pytest.skip("no git here")
    entries = [line.split("\t") for line in done.stdout.split("\0") if line]
    names = [name for _, name in entries]
    assert not [name for about, name in entries if about.startswith("120000")]  # links
    assert not [name for name in names if re.search(r'[<>:"|?*\\]|[. ](/|$)', name)]
    reserved = re.compile(r"(^|/)(con|prn|aux|nul|com\d|lpt\d)(\.|/|$)", re.IGNORECASE)
    assert not [name for name in names if reserved.search(name)]
    assert len({name.lower() for name in names}) == len(names)
    assert max(map(len, names)) < 120
