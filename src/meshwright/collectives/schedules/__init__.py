"""Schedules: a collective as rounds of transfers.

- `schedule`: the noun and its text form; `goals`: what each collective begins and ends with
- `programs`: what each rank does, stage by stage
- `compose`: schedules turned round, or placed into larger ones; `draw`: as a table and as SVG
"""
