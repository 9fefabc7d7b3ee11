"""Collective algorithms as data: written once, proved, priced, drawn and executed.

`catalogue` lists the algorithms by name, and `sources` says where a schedule comes from: a name, a file or a function.

Rooms, each of which imports only from those above it:

- `schedules`: the noun, start and goal of each collective, programs of ranks, schedules made of others, drawings
- `proof`: that a schedule does what its collective asks, and gives equal bits
- `algorithms`: ring, trees and the others, one family a file
- `pricing`: figures, closed formulas, seconds on a network
- `msccl`: XML of MSCCL, in and out; `mscclpp`: plans of MSCCL++, in and out
"""
