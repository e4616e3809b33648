"""A node that misbehaves when it is asked, as a process: python faulty_node.py FOLDER hang|nan|shape|raise."""

import sys
import time
from pathlib import Path

import numpy as np

from persfl.federation.hands import run_node
from persfl.federation.member import device_of
from persfl.fleets.flower.client import client_app
from persfl.wire import pack, unpack

SECRET = "patient-4711-is-ill"


def main(folder: Path, how: str) -> None:
    device = device_of(folder)
    honest = device.reply

    def reply(kind, body):
        if kind != "answer":
            return honest(kind, body)
        if how == "hang":
            time.sleep(1000)
        if how == "raise":

            def rows(r):
                raise ValueError(f"could not convert string to float: {SECRET!r}")

            device._rows = rows
            return honest(kind, body)
        head, arrays = unpack(honest(kind, body))
        change = {"nan": lambda v: v * np.nan, "shape": lambda v: np.append(v, 1.0)}[how]
        return pack(head, {name: change(array) for name, array in arrays.items()})

    device.reply = reply
    sys.exit(run_node(folder, say=lambda text: print(text, flush=True), going=lambda: True, app=client_app(lambda _: device)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
