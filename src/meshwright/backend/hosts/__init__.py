"""Groups over several hosts: rank placement, link rates, and the engine that joins local and network collectives.

- `placement` (ranks by host), `machine_names` and `addresses`: found when the group meets
- `engine`: joins collectives inside hosts (`backend.local`) and between them (`network`)
- `links`, `link_rates`: what the links carry; `choice`: the algorithm that is cheapest on them
"""
