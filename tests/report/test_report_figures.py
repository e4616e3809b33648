"""The report's figures: what is drawn is what the numbers say."""

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from report_example import example_info

from persfl.errors import InputError
from persfl.report import figures


def drawn(figure):
    """Drawing finds what building does not: labels that cannot be parsed, axes without room."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    return figure


def segments(collection):
    return np.array([segment[:, 0] for segment in collection.get_segments()])


@pytest.mark.parametrize("devices", [3, 8, 61, 300])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_example_obeys_the_contract(devices, task):
    info = example_info(devices=devices, seed=1, task=task)
    assert json.loads(json.dumps(info, allow_nan=False)) == info
    matrix, top = info["help"]["matrix"], info["help"]["top"]
    assert (
        len(info["devices"]["ids"])
        == len(set(info["devices"]["ids"]))
        == len(top)
        == devices
    )
    assert sorted(i for row in matrix["devices"] for i in row) == list(range(devices))
    assert len(matrix["names"]) <= 150
    assert matrix["blocks"][0] == 0
    assert matrix["blocks"][-1] == len(matrix["names"])
    np.testing.assert_allclose(np.sum(matrix["values"], axis=1), 1)
    assert all(
        len(rows) <= 15 and all(peer != i for peer, *_ in rows)
        for i, rows in enumerate(top)
    )
    assert all(
        [row[3] for row in rows] == sorted((row[3] for row in rows), reverse=True)
        for rows in top
    )
    assert [arm["key"] for arm in info["worth"]["arms"]] == [
        "base",
        "own",
        "pooled",
        "centred",
        "tuned",
        "personal",
    ]
    assert ("mistakes" in info["worth"]["arms"][0]) == (task == "classification")
    assert example_info(devices=3, worth=False)["worth"] is None


def test_gains_are_sorted_and_carry_their_intervals():
    info = example_info(devices=46)
    device, ids = info["worth"]["device"], info["devices"]["ids"]
    ax = drawn(figures.gains(info)).axes[0]
    order = sorted(
        (i for i in range(46) if device["gain"][i] is not None),
        key=lambda i: -device["gain"][i],
    )
    assert [bar.get_width() for bar in ax.containers[0]] == [
        device["gain"][i] for i in order
    ]
    assert [text.get_text() for text in ax.get_yticklabels()] == [ids[i] for i in order]
    whiskers = next(c for c in ax.collections if hasattr(c, "get_segments"))
    np.testing.assert_array_equal(
        segments(whiskers), [[device["low"][i], device["high"][i]] for i in order]
    )
    helped = sum(device["says"][i] == "helps here" for i in order)
    assert (
        ax.get_title("left")
        == f"helps here: {helped}, not enough own rows to tell: {len(order) - helped}"
    )


def test_helpers_show_share_chance_and_reward():
    info = example_info(devices=46)
    rows = info["help"]["top"][4]
    left, right = drawn(figures.helpers(info, info["devices"]["ids"][4])).axes
    assert [bar.get_width() for bar in left.containers[0]] == [row[3] for row in rows]
    total = sum(row[2] for row in rows) / sum(row[3] for row in rows)
    chance = [row[1] * info["help"]["chance"] / total for row in rows]
    np.testing.assert_allclose(segments(left.collections[0])[:, 0], chance)
    np.testing.assert_array_equal(
        segments(right.collections[0]), [row[5:7] for row in rows]
    )
    assert [text.get_text() for text in right.get_yticklabels()] == [
        info["help"]["verdicts"][row[7]] for row in rows
    ]


def test_losses_of_the_fleet_and_of_one_device():
    info = example_info(devices=46)
    ax = drawn(figures.losses(info, info["devices"]["ids"][7])).axes[0]
    assert [line.get_ydata().tolist() for line in ax.lines] == [
        info["loss"]["fleet"]["median"],
        info["loss"]["device"][7],
    ]
    assert ax.get_yscale() == "log"
    assert len(drawn(figures.losses(info)).axes[0].lines) == 1


def test_worth_draws_every_interval():
    info = example_info(devices=46)
    ax = drawn(figures.worth(info)).axes[0]
    rows = [
        row
        for row in info["worth"]["arms"] + info["worth"]["groups"]
        if row["gain"] is not None
    ]
    np.testing.assert_array_equal(
        segments(ax.collections[0]), [[row["low"], row["high"]] for row in rows]
    )


@pytest.mark.parametrize("devices", [3, 300])
def test_few_and_many_devices(devices):
    """Few have their names beside each other; of many, a cell stands for several."""
    info = example_info(devices=devices, task="classification")
    for draw in (
        figures.gains,
        figures.heat_map,
        figures.losses,
        figures.questions,
        figures.worth,
    ):
        drawn(draw(info))
    drawn(figures.helpers(info, info["devices"]["ids"][-1]))


def test_odd_names_missing_values_and_nothing_to_draw():
    info = example_info(devices=4)
    info["devices"]["ids"] = ["$x$ \\frac", "<b>", "a " * 200, "0"]
    info["help"]["matrix"]["names"] = info["devices"]["ids"]
    info["help"]["top"][1] = []
    for key in ("gain", "low", "high", "says"):
        info["worth"]["device"][key] = [None] * 4
    info["loss"]["device"][0] = [None] * len(info["loss"]["rounds"])
    for draw in (figures.gains, figures.heat_map, figures.questions):
        drawn(draw(info))
    drawn(figures.helpers(info, "<b>"))
    drawn(figures.losses(info, "$x$ \\frac"))
    with pytest.raises(InputError, match="no device is called 'Paris'"):
        figures.helpers(info, "Paris")
    for draw in (figures.gains, figures.worth):
        with pytest.raises(InputError, match="no rows were kept back"):
            draw(example_info(worth=False))


def test_figures_of_eight_devices():
    info = example_info(devices=8)
    gain = [gain for gain in info["worth"]["device"]["gain"] if gain is not None]
    bars = figures.gains(info).axes[0].containers[0]
    assert bars[0].get_width() == max(gain)
    image = figures.heat_map(info).axes[0].images[0].get_array()
    np.testing.assert_array_equal(image, info["help"]["matrix"]["values"])
    counts = [
        len(ax.containers) + len(ax.collections)
        for ax in figures.helpers(info, "Denton").axes
    ]
    assert counts == [2, 2]
    lines = [
        len(figures.losses(info, device).axes[0].lines) for device in (None, "Bryan")
    ]
    assert lines == [1, 2]
    heights = [bar.get_height() for bar in figures.questions(info).axes[0].patches]
    assert heights == sorted(info["help"]["answered"], reverse=True)
    names = [text.get_text() for text in figures.worth(info).axes[0].get_yticklabels()]
    assert names[:2] == ["against always the mean", "against own rows only"]
