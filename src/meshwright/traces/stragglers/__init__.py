"""The rank that the others wait for, told by who comes last to the collectives.

The way: `meetings` (collectives joined across ranks; groups that no trace names by their `common_ends`; clocks moved
together by `clock_offsets`) -> `own_lateness` (how late a rank is by itself: waits `chained` behind others and
`absorbed` by later ones do not count) -> `lost_by` (what a rank costs) -> `culprit` (the verdict) with
`straggler_reason` (what the rank did meanwhile).

Beside it: `late_together` (several ranks at once, such as those of a host), `in_turn` (another one in each step),
`neighbours` and `pace` (who sets the pace of a pipeline or a ring), its `bubble`, `collective_costs` (waiting and
moving data), `slow_links`.
"""
