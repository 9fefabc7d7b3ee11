"""Blame for a failure: errors that name a rank, records of the last collectives, notes that ranks leave each other.

- `failures`: the errors that a collective raises; `agreement`: debug mode, which compares the ranks' calls first
- `flight`: the record of a rank's last collectives
- `blame` (across hosts) and `blame_board` (across groups): whom ranks that wait for each other name
"""
