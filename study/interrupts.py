"""An interrupt ends the study in order at any moment, also while modules are read: so this one is read first."""

import os
import signal
import sys

INTERRUPTED = 130  # the exit status


def _end_quietly(kind, error, trace):
    """Where nothing has caught it."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _end_quietly
for number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_DFL:  # under nohup one is ignored
        signal.signal(number, signal.default_int_handler)
