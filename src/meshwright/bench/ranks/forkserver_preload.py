"""Imported by the fork server alone, which starts with these signals blocked: it ignores them from here on.

The processes that it forks inherit this, unless they set handlers of their own.
"""

import signal

from .job_signals import JOB_SIGNALS

for _signum in JOB_SIGNALS:
    signal.signal(_signum, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, JOB_SIGNALS)
