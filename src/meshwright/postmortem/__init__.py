"""The post-mortem of a hung job: what its files tell of who kept the others waiting, by named rules.

inputs.py                     files and folders into a case
lines.py                      text into messages: prefixes off, glued lines cut, wrapped lines joined
watchdog.py nccl.py system.py endings.py stacks.py kernels.py    messages into facts (facts.py)
pickles.py flight.py          flight records into groups of calls (calls.py)
spoken.py                     facts of logs into groups of calls; who is silent
positions.py standing.py      groups and stacks into a position: the call that hangs, who is in it, who is not
causes.py                     the fault that came first
rules.py verdict.py           a case into a verdict
page.py                       a verdict into a page
"""
