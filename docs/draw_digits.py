"""Puts results of the digits experiments into docs/digits.md, as tables, and draws docs/digits.png.

python docs/draw_digits.py results   first put what docs/measure_digits.py left in that folder in
its place: the specs with the
                                     chosen settings among the specs, the errors into
                                     docs/digits.json (those of one method alone beside what is
                                     there of the others)
python docs/draw_digits.py           from what is there

A cell is the held-out accuracy in per cent: the mean over devices, then over runs, with Student's
95 % interval over runs. Methods are compared run by run: the same run gives every method the same
devices, rows and starting weights.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from persfl.lab.figure_specs import load_spec
from persfl.lab.spec_files import SPECS

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "digits.json", HERE / "digits.md"
NETWORKS = {"mlp": "Two layers (64-32-10)", "cnn": "Convolutional"}
COLOURS = {
    "paper's rule": "#3b6fb6",
    "top k": "#7fb0e6",
    "local": "#4d4d4d",
    "FedAvg": "#e08214",
    "FedAvg + fine-tuning": "#f2b76b",
    "Ditto": "#a32a5c",
    "IFCA told right": "#2d7d5a",
    "IFCA told wrong": "#9fd0b5",
    "blend": "#111111",
}


AGAINST_BLEND = ("paper's rule", "FedAvg", "Ditto", "IFCA told right")


def gathered(paths: list[Path]) -> dict[str, Any]:
    """What is needed of run.json files: per network and number of devices every series' error
    at the end of every run.
    """
    found: dict[str, Any] = {
        "seed": None,
        "runs": None,
        "versions": None,
        "computed": None,
        "errors": {},
    }
    for path in paths:
        run = json.loads(path.read_text(encoding="utf-8"))
        one = next(iter(run["settings"].values()))
        spec = load_spec(
            f"networks/digits-{one['learner']}",
            {"n": one["n"], "compute": one["compute"]},
        )
        known = {series.name: vars(series.settings) for series in spec.series}
        mine = {name: known[name] for name in run["settings"] if name in known}
        if run["settings"] != json.loads(json.dumps(mine)):
            raise SystemExit(
                f"{path} was run with other settings than those of the spec. Run the spec again."
            )
        about = {
            "seed": run["seed"],
            "runs": run["runs"],
            "versions": run["versions"],
            "computed": one["compute"],
        }
        if found["seed"] is not None and any(
            found[key] != value for key, value in about.items()
        ):
            raise SystemExit(
                f"{path} has another seed, number of runs, processor or versions than the files"
                " before it."
            )
        found |= about
        found["errors"][f"{one['learner']} {one['n']}"] = {
            name: np.round(ends, 6).tolist() for name, ends in run["ends"].items()
        }
    return found


def beside(found: dict[str, Any]) -> dict[str, Any]:
    """Results of one method with those that are there of the others, of the same runs; results
    of all take their place.
    """
    methods = {split(name)[0] for errors in found["errors"].values() for name in errors}
    if len(methods) > 1:
        return found
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    if any(found[key] != kept[key] for key in ("seed", "runs")):
        raise SystemExit("these results have another seed or number of runs.")
    for key, errors in found["errors"].items():
        kept["errors"].setdefault(key, {}).update(errors)
    return kept


def interval(values: Any) -> tuple[float, float]:
    """Mean and half of Student's 95 % interval."""
    values = np.asarray(values)
    return float(values.mean()), float(
        stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    )


def split(name: str) -> tuple[str, str]:
    """Method and panel of a series' name."""
    method, _, panel = name.rpartition(", ")
    return method, panel


def table(errors: dict[str, list[float]]) -> str:
    """Methods by numbers of clusters; the best of a column, and all that are not clearly worse
    in the same runs, are bold.
    """
    methods, panels = (
        list(dict.fromkeys(part)) for part in zip(*map(split, errors), strict=True)
    )
    best = {
        panel: min(methods, key=lambda m: np.mean(errors[f"{m}, {panel}"]))
        for panel in panels
    }
    lines = [f"| | {' | '.join(panels)} |", "|---" * (len(panels) + 1) + "|"]
    for method in methods:
        cells = []
        for panel in panels:
            mine, least = (
                np.array(errors[f"{method}, {panel}"]),
                np.array(errors[f"{best[panel]}, {panel}"]),
            )
            middle, half = interval(100 * (1 - mine))
            worse, by = interval(mine - least)
            cells.append(
                f"**{middle:.1f} ± {half:.1f}**"
                if worse - by <= 0
                else f"{middle:.1f} ± {half:.1f}"
            )
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def duel(
    errors: dict[str, Any], one: str, other: str, panels: list[str]
) -> tuple[int, int, list[float]]:
    """In how many cells one method is clearly better and worse than another, in the same runs;
    and every cell's gain in points. Tables without one of them do not count.
    """
    better = worse = 0
    gains = []
    for series in errors.values():
        for panel in panels:
            if not {f"{one}, {panel}", f"{other}, {panel}"} <= set(series):
                continue
            middle, half = interval(
                np.array(series[f"{other}, {panel}"])
                - np.array(series[f"{one}, {panel}"])
            )
            better, worse = better + (middle - half > 0), worse + (middle + half < 0)
            gains.append(100 * middle)
    return better, worse, gains


def columns(kept: dict[str, Any]) -> list[str]:
    """The numbers of clusters, in words."""
    return list(
        dict.fromkeys(
            split(name)[1] for series in kept["errors"].values() for name in series
        )
    )


def duels(kept: dict[str, Any]) -> str:
    """Pairs of methods, for every number of clusters."""
    lines = [
        "| | against | | better | worse | of | gain |",
        "|---|---|---|---|---|---|---|",
    ]
    for one, other in (
        *((rival, "paper's rule") for rival in ("Ditto", "FedAvg", "top k")),
        ("Ditto", "top k"),
        ("local", "top k"),
        *(("blend", rival) for rival in AGAINST_BLEND),
    ):
        for panel in columns(kept):
            better, worse, gains = duel(kept["errors"], one, other, [panel])
            lines.append(
                f"| {one} | {other} | {panel} | {better} | {worse} | {len(gains)} |"
                f" {min(gains):+.1f} to {max(gains):+.1f} |"
            )
    return "\n".join(lines)


def said(kept: dict[str, Any]) -> str:
    """What the authors' numbers on rotated CIFAR-10 say, and what these say."""
    errors, panels = kept["errors"], columns(kept)
    tables = len(errors)
    ditto, against, gains = duel(errors, "Ditto", "paper's rule", panels)
    average, not_average, points = duel(errors, "FedAvg", "paper's rule", panels[:1])
    lines = [
        (
            f"- *Does Ditto beat the paper's rule everywhere?* It is clearly better in {ditto} of"
            f" {len(gains)} cells of the tables below and clearly worse in {against}; the gain goes"
            f" from {min(gains):+.1f} to {max(gains):+.1f} points of accuracy."
        ),
        (
            "- *Does averaging win when there is only one cluster?* FedAvg is clearly better than"
            f" the paper's rule in {average} of {tables} tables and clearly worse in {not_average}"
            f" ({min(points):+.1f} to {max(points):+.1f} points)."
        ),
    ]
    beside_blend = []
    for rival in AGAINST_BLEND:
        more, less, cells = duel(errors, "blend", rival, panels)
        beside_blend.append(
            f"{rival} {more} / {less} of {len(cells)} ({min(cells):+.1f} to {max(cells):+.1f})"
        )
    lines.append(
        "- *And blend, which is told nothing?* Cells in which it is clearly better / clearly worse,"
        f" and by how many points: {'; '.join(beside_blend)}."
    )
    for panel in panels:
        means = {
            n: {
                split(s)[0]: np.mean(e)
                for s, e in series.items()
                if split(s)[1] == panel
            }
            for n, series in errors.items()
        }
        best = [
            min(series, key=lambda method: series[method]) for series in means.values()
        ]
        names = ", ".join(
            f"{name} ({best.count(name)})" for name in dict.fromkeys(best)
        )
        lines.append(
            f"- Most accurate with {panel}, and in how many of {tables} tables: {names}."
        )
    return "\n".join(lines)


def settings(network: str) -> str:
    """What was chosen for every method and number of clusters."""
    spec = load_spec(f"networks/digits-{network}")
    methods, panels = (
        list(dict.fromkeys(part))
        for part in zip(*(split(series.name) for series in spec.series), strict=True)
    )
    known = {series.name: series for series in spec.series}
    lines = [f"| | {' | '.join(panels)} |", "|---" * (len(panels) + 1) + "|"]
    for method in methods:
        chosen = [known[f"{method}, {panel}"] for panel in panels]
        if not chosen[0].grid:  # it chooses for itself
            continue
        told = [
            ", ".join(f"{getattr(one.settings, key):g}" for key in one.grid)
            for one in chosen
        ]
        lines.append(f"| {method} ({', '.join(chosen[0].grid)}) | {' | '.join(told)} |")
    return "\n".join(lines)


def blocks(kept: dict[str, Any]) -> dict[str, str]:
    """Everything that stands between markers on the page."""
    found = {"said": said(kept), "duels": duels(kept)}
    for network, title in NETWORKS.items():
        found[f"settings-{network}"] = settings(network)
        mine = {
            key.split()[1]: errors
            for key, errors in kept["errors"].items()
            if key.split()[0] == network
        }
        parts = [
            f"**{title}, {n} devices**\n\n{table(errors)}" for n, errors in mine.items()
        ]
        found[f"table-{network}"] = "\n\n".join(parts) or f"{title}: not run yet."
    versions = ", ".join(
        f"{name} {value}"
        for name, value in kept["versions"].items()
        if value and name != "persfl"
    )
    tuned = sorted(
        {load_spec(f"networks/digits-{network}").tuned for network in NETWORKS}
    )
    how = (
        f"chosen in runs with {' and '.join(tuned)}"
        if all(tuned)
        else "first guesses: nothing has been tuned yet"
    )
    found["about"] = (
        f"Seed {kept['seed']}, runs 0 to {kept['runs'] - 1}, computed on {kept['computed']!r}"
        f" ({versions}). The settings are {how}."
    )
    return found


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with each part between its markers."""
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->", "<!-- end -->"
        page, times = re.subn(
            f"{begin}.*?{end}",
            lambda _, whole=f"{begin}\n\n{text}\n\n{end}": whole,
            page,
            flags=re.S,
        )
        if times != 1:
            raise SystemExit(
                f"the page must hold {begin} ... {end} once. It does {times} times."
            )
    return page


def draw(kept: dict[str, Any], path: Path) -> None:
    """Accuracy by number of clusters, a panel for every network and number of devices."""
    from matplotlib.figure import Figure

    sizes = list(dict.fromkeys(key.split()[1] for key in kept["errors"]))
    networks = [
        network
        for network in NETWORKS
        if any(key.split()[0] == network for key in kept["errors"])
    ]
    figure = Figure(
        figsize=(3.6 * len(sizes) + 2.2, 3.1 * len(networks)), layout="constrained"
    )
    axes = figure.subplots(len(networks), len(sizes), squeeze=False, sharey=True)
    for ax, (network, size) in zip(
        axes.ravel(), ((w, s) for w in networks for s in sizes), strict=True
    ):
        errors = kept["errors"].get(f"{network} {size}", {})
        if not errors:  # not measured
            ax.set_visible(False)
            continue
        methods, panels = (
            list(dict.fromkeys(part)) for part in zip(*map(split, errors), strict=True)
        )
        for k, method in enumerate(methods):
            middle, half = np.array(
                [
                    interval(100 * (1 - np.array(errors[f"{method}, {p}"])))
                    for p in panels
                ]
            ).T
            at = np.arange(len(panels)) + 0.06 * (k - len(methods) / 2)
            ax.errorbar(
                at,
                middle,
                yerr=half,
                color=COLOURS[method],
                marker="o",
                markersize=4,
                linewidth=1.4,
                capsize=2,
                label=method,
            )
        ax.set_xticks(range(len(panels)), [panel.split()[0] for panel in panels])
        ax.set_title(f"{NETWORKS[network]}, {size} devices", fontsize=9.5)
        ax.grid(alpha=0.3, linestyle="--")
        ax.spines[["top", "right"]].set_visible(False)
        before = [f"{network} {one}" for one in sizes[: sizes.index(size)]]
        if not any(key in kept["errors"] for key in before):  # first of its row
            ax.tick_params(labelleft=True)
    figure.supxlabel("rotation clusters", fontsize=10)
    figure.supylabel("held-out accuracy (%)", fontsize=10)
    figure.legend(
        *max(
            (ax.get_legend_handles_labels() for ax in axes.flat),
            key=lambda h: len(h[1]),
        ),
        loc="outside right center",
        fontsize=9,
        frameon=False,
    )
    figure.savefig(path, dpi=110)


def main(arguments: list[str]) -> None:
    """Gather, fill the page, draw."""
    for folder in map(Path, arguments):
        for spec in folder.glob("digits-*.toml"):
            shutil.copy(spec, SPECS / "networks")
        runs = sorted(
            folder.glob("*-*.json"), key=lambda path: int(path.stem.split("-")[1])
        )
        KEPT.write_text(json.dumps(beside(gathered(runs))) + "\n", encoding="utf-8")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(
        filled(PAGE.read_text(encoding="utf-8"), blocks(kept)), encoding="utf-8"
    )
    draw(kept, HERE / "digits.png")


if __name__ == "__main__":
    main(sys.argv[1:])
