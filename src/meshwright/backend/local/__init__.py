"""Ranks of one host: the memory that they share, how they wait for each other, collectives over it, in C or Python.

- the shared block: `reach` (with whom), `segment` (made and opened), `memory` (its layout), `slot_stores`
- `ranks`: slots, counters and the rule that keeps ranks apart; `calls`: what each rank calls, compared
- `waiting` and `sched`: how a rank waits, and time slices of the threads that carry messages
- `weak`: callbacks that keep nothing alive
- collectives: `engine`, `move`, `reduce` with `reductions` in Python; `helper` with helper.c, the same in C
"""
