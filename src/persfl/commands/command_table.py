"""All commands, as data. A new one is a row here, its options a table in `option_tables`."""

from __future__ import annotations

from typing import NamedTuple

from persfl.commands import option_tables as options


class Command(NamedTuple):
    """A command: its name, its line in the list, what runs it, its options."""

    name: str
    about: str
    run: str = ""  # MODULE:FUNCTION of persfl.commands, imported when it runs
    options: str = ""
    description: str = ""  # above its options; without one, the line in the list
    commands: tuple[Command, ...] = ()  # those below it


COMMANDS = {
    "from a table": (
        Command(
            "demo",
            "bundled real data, from table to report, in a minute",
            "housing_demo:run_demo",
            options.DEMO,
        ),
        Command(
            "fit",
            "a model for every device of a table, and a report of who helps whom",
            "table_fit:fit_table",
            options.FIT,
            "A model for every device of a table, kept in a folder with a report. Every device's"
            " rows stay its own; peers answer from theirs.",
        ),
        Command(
            "shard",
            "sort a folder of files, larger than memory, by device into shards",
            "shard_rows:shard_rows",
            options.SHARD,
        ),
        Command(
            "helpers",
            "who helps a device, ranked",
            "run_output:list_helpers",
            options.HELPERS,
        ),
        Command(
            "predict",
            "predictions for new rows, each by its own device's model",
            "predict:predict",
            options.PREDICT,
        ),
        Command(
            "watch",
            "how far a run is that is going on, and in the end what came out",
            "watch:watch",
            options.WATCH,
        ),
        Command(
            "report",
            "write a run's report, one HTML file",
            "run_output:write_report_again",
            options.REPORT,
        ),
        Command(
            "export",
            "a run for other tools: ONNX, scikit-learn, a model card",
            "export_run:export_run",
            options.EXPORT,
        ),
        Command(
            "compare",
            "own rows, one model for all, fedavg, ifca and the default on the same held-out rows",
            "compare:compare_table",
            options.COMPARE,
        ),
        Command(
            "leaks",
            "what a fleet's answers give away of rows, and what protection leaves of that",
            "leaks:measure_leaks",
            options.LEAKS,
        ),
        Command(
            "methods",
            "the ways to personalize there are",
            "method_list:methods",
            options.METHODS,
        ),
    ),
    "between machines": (
        Command(
            "federation",
            "a real federation between machines, over Flower: init, up, demo",
            commands=(
                Command(
                    "init",
                    "make a federation's folder: certificates, node keys, configuration",
                    "federation:make_folder",
                    options.INIT,
                ),
                Command(
                    "up",
                    "the SuperLink behind a proxy that lets only nodes through",
                    "federation:up",
                    options.UP,
                ),
                Command(
                    "demo",
                    "all of it on this machine: nodes as processes, TLS, a run, its report; then"
                    " cleans up",
                    "federation:demo",
                    options.FEDERATION_DEMO,
                ),
            ),
        ),
        Command(
            "node",
            "take part in a federation with the rows of a table",
            "federation:node",
            options.NODE,
        ),
        Command(
            "federate",
            "a run over a federation that is up",
            "federate:federate",
            options.FEDERATE,
        ),
        Command(
            "ledger",
            "what was asked of a device, by whom, when, and how much was answered",
            "federation:ledger",
            options.LEDGER,
        ),
    ),
    "experiments": (
        Command(
            "reproduce",
            "regenerate the paper's figures (without a name: list them)",
            "spec_runs:reproduce",
            options.REPRODUCE,
        ),
        Command(
            "run",
            "run an experiment of your own from a .toml spec",
            "spec_runs:run_experiment",
            options.RUN,
        ),
        Command(
            "tune",
            "choose settings from the grids of a spec, on seeds of their own",
            "spec_runs:tune",
            options.TUNE,
        ),
    ),
}
