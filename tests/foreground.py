"""Importing this module makes the test, and every program that it starts, get signals as in the foreground.

A shell ignores SIGINT for jobs in the background, and nohup ignores SIGHUP; child processes inherit which signals are ignored.
"""

import signal

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def is_caught(pid, number):
    """Returns True if the process has a handler of its own for the signal `number`."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
