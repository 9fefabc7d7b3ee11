"""Ranks that measure: started by `setup`, kept in a `pool`, each in a `process` that is set up as in training.

`forkserver_preload` is imported before they fork, `job_signals` reach all of them, `progress` counts what is done.
"""
