"""Positions: in which call the ranks hang, who is in it and who is not; from groups of calls and from stacks.

- groups: `agreement` (calls that are not made alike), `waits` (who waits for whom, over all groups),
  `departures` (who stands apart in a circle of these)
- stacks: `stands` (where one process stands), `stack_positions` (what several say), `alike_stacks` (who stands where
  others do), `own_ways` (who evaluates alone), `transfers` (sends and receives that meet, or wait in a circle)
"""
