"""Collective algorithms as data: written once, proved, priced, drawn and executed.

- the noun: `schedule`, `goals` (start and goal of each collective), `sources` (where one comes from)
- proved and judged: `verify`, `waits`, `bitwise`, `figures`, `rotation`, `formulas`, `price` on a `network`; `draw`
- algorithms: `algorithms` (the list), `ring`, `rings`, `trees`, `halving`, `dissemination`, `direct`, `decentralised`,
  `primitives`; built of others by `compose`, `hierarchical`, `uneven`
- executed: `programs`, what each rank does
- MSCCL XML: `msccl_file`, `msccl_import` with `msccl_slots` and `msccl_order`, `msccl_export`, `msccl_write`,
  `msccl_limits`, `msccl_flight`, `msccl_same`, `msccl_trip`
- MSCCL++ plans: `mscclpp_file`, `mscclpp_order`, `mscclpp_import`, `mscclpp_export`
"""
