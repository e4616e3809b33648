"""A node as a process that is honest until a file `mode` in its folder says how it shall misbehave.

python faulty_node.py FOLDER          (modes: hang, nan, shape, which is followed by raise)
"""

import sys
import time
from pathlib import Path

import numpy as np

from persfl.federation.flower_app import client_app
from persfl.federation.node import run_node
from persfl.federation.node_folder import device_of
from persfl.wire import pack, unpack

SECRET = "patient-4711-is-ill"


def main(folder: Path) -> None:
    device = device_of(folder)
    honest = device.reply
    shaped = []

    def reply(kind, body):
        mode = folder / "mode"
        how = mode.read_text() if mode.is_file() else ""
        if kind != "answer" or not how:
            return honest(kind, body)
        if how == "hang":
            time.sleep(1000)
        if how == "shape" and shaped:

            def rows(r):
                raise ValueError(f"could not convert string to float: {SECRET!r}")

            device.source = rows
            return honest(kind, body)
        shaped.append(how)
        head, arrays = unpack(honest(kind, body))
        change = {"nan": lambda v: v * np.nan, "shape": lambda v: np.append(v, 1.0)}[
            how
        ]
        return pack(head, {name: change(array) for name, array in arrays.items()})

    device.reply = reply
    app = client_app(lambda _: device)
    sys.exit(
        run_node(
            folder,
            say=lambda text: print(text, flush=True),
            going=lambda: True,
            app=app,
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
