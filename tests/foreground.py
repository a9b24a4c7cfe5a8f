"""Importing this gives the test, and every program that it starts, its signals as in a foreground shell.

A shell that starts a job in the background has SIGINT ignored, nohup has SIGHUP, and both are inherited.
"""

import signal

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def is_caught(pid, number):
    """True once the process has a handler of its own for that signal."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
