"""Become a command that is ended when the process that started it is gone, however that went.

    python -I -S leash.py PARENT COMMAND ...

Linux sends a signal to a process whose parent dies if the process has asked for it, and remembers
that when the process becomes another program. So this asks and then becomes COMMAND: same process
id, and nothing of Python has to run between a fork and an exec of the parent.
"""

import ctypes
import os
import signal
import sys

_DEATH = 1  # prctl's PR_SET_PDEATHSIG


def run_leashed(parent: str, *words: str) -> None:
    """Ask for the signal, see that the parent still lives, become the command."""
    ctypes.CDLL(None).prctl(_DEATH, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before we asked
        sys.exit(1)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"{words[0]}: {error.strerror}")


if __name__ == "__main__":
    run_leashed(*sys.argv[1:])
