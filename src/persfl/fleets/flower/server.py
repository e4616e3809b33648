"""The ServerApp: reads a plan (a JSON file of this machine) and conducts the run."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Conduct the run of `plan`."""
    from persfl.federation.running import conduct

    conduct(grid, Path(str(context.run_config["plan"])))
