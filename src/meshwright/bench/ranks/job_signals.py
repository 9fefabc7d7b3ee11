"""Signals that a terminal or a scheduler sends to all processes of a job."""

import signal

JOB_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
