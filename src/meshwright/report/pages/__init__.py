"""One file for each kind of page: a run, two runs, a plan, traces, a benchmark."""
