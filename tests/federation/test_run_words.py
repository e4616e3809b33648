"""What a federated run says: who is waited for, who is no target, what came out, and what went
wrong.
"""

import json
import socket
import threading

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from federated import at_home, columns, plan

from persfl import __version__
from persfl.checks import percent
from persfl.cli import main, parser
from persfl.commands.federate import Lines, answer, run_method
from persfl.errors import InputError
from persfl.federation.conduct import conduct
from persfl.federation.federation_folder import init
from persfl.federation.local_grid import LocalGrid
from persfl.federation.superlink import check_up
from persfl.fleets.flower import Policy
from persfl.runs import Folder, load_model
from persfl.sources import clustered_regression
from persfl.wire import pack, unpack

DEVICES = clustered_regression(n=6, clusters=2, rows=16, features=3, noise=0.2, seed=4)


def events(out):
    return [
        json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()
    ]


def some_unwilling(*names):
    homes = at_home(DEVICES)
    for name in names:
        homes[name].policy = Policy(rows=0, target=False)
    return homes


@pytest.mark.parametrize("method", ["paper", "kin", "blend"])
def test_a_device_that_wants_no_model_is_no_target(method, tmp_path, capsys):
    out = tmp_path / "run"
    homes = some_unwilling("d02", "d05")
    conduct(
        LocalGrid(homes),
        plan(out, homes, method=method, rounds=3, budget=60, ordered=False, quorum=1.0),
    )
    (begun,) = [event for event in events(out) if event["event"] == "devices"]
    assert begun["targets"] == ["d00", "d01", "d03", "d04"]
    assert not [event for event in events(out) if event["event"] == "waiting"]
    Lines(False)("devices", begun)
    assert (
        "6 devices, 4 of them targets (d02, d05 do not want a model)"
        in capsys.readouterr().out
    )
    told = Folder.open(out).read_json("federation.json")
    assert told["targets"] == ["d00", "d01", "d03", "d04"]
    notes = " ".join(told["notes"])
    assert (
        "d02, d05 do not want a model (target = false in node.toml) and answered as a peer only"
        in notes
    )
    assert "could not be told" not in notes
    model = load_model(out)
    assert np.isnan(np.stack(model.models_)[[2, 5]]).all()
    assert np.isfinite(np.stack(model.models_)[[0, 1, 3, 4]]).all()
    counts = {row["device"]: row for row in told["counts"]}
    assert counts["d02"]["answered"] > 0  # as a peer
    assert not counts["d02"]["refused"]


def test_who_is_no_target_is_remembered_when_a_run_goes_on(tmp_path):
    out = tmp_path / "run"
    homes = some_unwilling("d02")
    asked = plan(out, homes, rounds=3)
    grid, calls = LocalGrid(homes), []
    pushed = grid.push_messages

    def dying(messages):
        calls.append(1)
        if len(calls) == 6:
            raise MemoryError
        return pushed(messages)

    grid.push_messages = dying
    with pytest.raises(MemoryError):
        conduct(grid, asked)
    conduct(LocalGrid(homes), asked)
    assert "d02" not in Folder.open(out).read_json("federation.json")["targets"]


def test_nobody_wants_a_model(tmp_path):
    homes = some_unwilling(*at_home(DEVICES))
    with pytest.raises(InputError, match="no device wants a model"):
        conduct(LocalGrid(homes), plan(tmp_path / "run", homes))


@pytest.mark.parametrize("method", ["paper", "blend"])
def test_who_is_missing_is_said_once_by_name(method, tmp_path):
    """A device goes away in the middle: it is waited for, named with when it was seen, and said
    once.
    """
    out = tmp_path / "run"
    homes = some_unwilling("d05")
    grid, calls = LocalGrid(homes), []
    nodes = grid.get_nodes

    def looked():
        calls.append(1)
        grid.away = {"d03"} if 4 <= len(calls) < 9 else set()
        return nodes()

    grid.get_nodes = looked
    asked = plan(
        out,
        homes,
        method=method,
        rounds=2,
        budget=40,
        ordered=False,
        quorum=1.0,
        patience=60.0,
        peers=5,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        conduct(grid, asked)
    said = [event["text"] for event in events(out) if event["event"] == "waiting"]
    assert said
    assert all("d03 (last seen " in text for text in said)
    assert all("; d05 does not want a model" in text for text in said)
    assert len(said) == len(set(said))


def test_a_superlink_that_went_away_is_said_and_how_to_go_on(tmp_path):
    homes = at_home(DEVICES)
    grid = LocalGrid(homes)

    def gone(messages):
        raise KeyboardInterrupt

    grid.push_messages = gone
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        conduct(grid, plan(out, homes))
    why = events(out)[-1]["why"]
    assert "SuperLink" in why
    assert "--resume" in why
    assert "KeyboardInterrupt" not in why


def test_answers_of_another_kind_are_answers(tmp_path, capsys):
    """In an honest run everybody answers; what does not fit who asked is said as that."""
    out = tmp_path / "run"
    rows = clustered_regression(
        n=5, clusters=2, rows=12, features=12, noise=0.3, seed=0
    )
    homes = at_home(rows)
    conduct(
        LocalGrid(homes), plan(out, homes, rounds=4, peers=4, steps=10, units="shared")
    )
    rounds = [event for event in events(out) if event["event"] == "round"]
    assert [event["answered"] for event in rounds] == [20] * 4
    assert rounds[-1]["unfit"] > 0
    Lines(False)("round", rounds[-1])
    said = capsys.readouterr().out
    assert (
        f"asked 20, answered 20, {rounds[-1]['unfit']} of these did not fit who asked"
        in said
    )
    assert "jump" not in said
    assert "of 80 answers did not fit the device that asked" in " ".join(
        load_model(out).notes_
    )


# What came out


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    homes = at_home(DEVICES)
    homes["d04"].policy = Policy(rows=0, models=("tree",))  # asked, and silent
    conduct(LocalGrid(homes), plan(out, homes, rounds=4))
    return out


def test_federate_says_what_came_out(finished, capsys):
    answer(finished, Lines(False))
    said = capsys.readouterr().out
    assert "(method 'paper')" in said
    worth = load_model(finished).worth_
    assert worth is not None
    verdict = worth.fleet()
    assert f"measured on {worth.table['held'].sum():,} rows" in said
    assert f"{percent(verdict.low)} to {percent(verdict.high)}" in said
    assert "own rows only" in said
    assert "personalized" in said
    answer(finished, Lines(True))
    told = json.loads(capsys.readouterr().out)
    assert told["event"] == "answer"
    assert "says" in told


def test_the_pages_of_a_federation(finished):
    assert main(["report", str(finished)]) == 0
    page, own = (
        (finished / "report.html").read_text(),
        (finished / "federation.html").read_text(),
    )
    assert '<a href="federation.html">' in page
    assert not [
        note for note in load_model(finished).notes_ if "This was a federation" in note
    ]
    assert "federation.html" not in own
    assert '<a href="report.html">' in own


def test_helpers_show_no_nan(finished, capsys):
    assert main(["helpers", str(finished), "--device", "d00"]) == 0
    said = capsys.readouterr().out
    assert "d04" in said
    assert "nan" not in said


def test_a_wrong_label_gets_a_hint(tmp_path, capsys):
    fed = init(tmp_path / "fed", ["ann"], port=19451, inner=19452)
    rows = tmp_path / "rows.csv"
    pd.DataFrame(DEVICES[0].X, columns=columns(DEVICES)).assign(
        price=DEVICES[0].y
    ).to_csv(rows, index=False)
    for label, says in (
        ("prise", "Did you mean 'price'?"),
        ("zzz", "It has 'x0', 'x1', 'x2', 'price'."),
    ):
        assert (
            main(
                [
                    "node",
                    "--config",
                    str(fed.path / "ann"),
                    "--data",
                    str(rows),
                    "--label",
                    label,
                    "--check",
                ]
            )
            == 2
        )
        assert f"has no column {label!r}. {says}" in capsys.readouterr().err


# Before a run


def asked(*words):
    return parser().parse_args(["federate", "fed", "--out", "run", *words])


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "blend"),
        (["--budget", "60", "--ordered"], "blend"),
        (["--model", "tree"], "blend"),
        (["--method", "paper", "--rounds", "5", "--units", "raw"], "paper"),
        (["--method", "kin", "--rounds", "5"], "kin"),
    ],
)
def test_federate_goes_by_blend_unless_another_method_is_named(words, name):
    assert run_method(asked(*words)) == name


@pytest.mark.parametrize("option", ["--rounds", "--peers", "--points", "--reach"])
def test_blend_takes_no_options_of_methods_that_go_by_rounds(option):
    says = f"{option} is for methods that go by rounds, .* 'blend'. Add --method paper"
    with pytest.raises(InputError, match=says):
        run_method(asked(option, "5"))


def test_what_is_not_up_is_said_at_once(tmp_path):
    silent, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    port, inner = silent.getsockname()[1], other.getsockname()[1]
    other.close()
    fed = init(tmp_path / "fed", ["ann"], port=port, inner=inner)
    with pytest.raises(
        InputError,
        match=f"nothing listens on port {inner}, so the SuperLink is not up. Start `persfl",
    ):
        check_up(fed)
    # something that is no SuperLink
    wrong = init(tmp_path / "wrong", ["ann"], port=inner, inner=port)

    def answering():
        with silent.accept()[0] as one:
            one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=answering)
    thread.start()
    with pytest.raises(
        InputError,
        match=f"what listens on port {port} is not the SuperLink of this federation",
    ):
        check_up(wrong)
    thread.join()
    silent.close()


class OfBefore:
    """A device whose persfl is of the version before: it does not say which questions it knows."""

    def __init__(self, device, version=None):
        self.device, self.version = device, version

    def reply(self, kind, body):
        head, arrays = unpack(self.device.reply(kind, body))
        head = {k: v for k, v in head.items() if k not in ("protocol", "version")}
        more = {} if self.version is None else {"protocol": 9, "version": self.version}
        return pack(head | more, arrays)


@pytest.mark.parametrize("version", [None, "0.9", "x" * 99, 7])
def test_a_node_of_another_version_is_told_which_to_install(version, tmp_path):
    out = tmp_path / "run"
    homes = at_home(DEVICES)
    homes["d01"] = OfBefore(homes["d01"], version)
    conduct(LocalGrid(homes), plan(out, homes, rounds=2))
    said = [event["text"] for event in events(out) if event["event"] == "waiting"]
    has = version if version == "0.9" else "0.2 or before"
    assert said[0] == (
        f"device 'd01' has another version of persfl ({has}) than here. Install this one there:"
        f" pip install 'persfl[flower]=={__version__}'."
    )
    assert sum("d01" in text and "Install" in text for text in said) == 1


def test_where_all_nodes_are_of_another_version_the_run_says_so(tmp_path):
    homes = {name: OfBefore(one) for name, one in at_home(DEVICES).items()}
    with pytest.raises(InputError, match="too few to begin.* Device 'd00' has another"):
        conduct(LocalGrid(homes), plan(tmp_path / "run", homes))
