"""Makes an interrupt end the study in order at any time. Must be imported first, so that this holds also while other modules are imported."""

import os
import signal
import sys

INTERRUPTED = 130  # the exit status


def _end_quietly(kind, error, trace):
    """Handles exceptions that nothing has caught."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _end_quietly
for number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
        signal.signal(number, signal.default_int_handler)
