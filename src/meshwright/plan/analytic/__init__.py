"""Time and memory of layouts, term by term, over arrays: one code for one run and for 100,000 layouts.

- inputs: `quantities` (arrays of model, machine and layouts), `coefficients` (the constants), `recipes` (scales of
  fp8), `conditions`, `distinct`
- traffic: `sent` (what a rank sends, of many layouts), `rank_parameters` (of what), `calls` (the list of one layout)
- time: `price` -> `step` -> `layer` -> `products`, `attention`, `adapters`, `axis_traffic` -> `collective` ->
  `torus`; `further_tokens`, `host`, `optimizers`, `loads` (what each rank of a pipeline has)
- memory: `memory` of `states` and `saved_activations`, `by_stage`; `fits` (beside the card),
  `held_roles` (how a run says that it holds weights and logits)
- measured links: `measured`; a user's runs: `calibration`, `factors`
- certainty: `fitted_range` (the runs of the fit), `cautions`, `dispatch` (of experts, where nothing tells it),
  `unnamed_stack` (where nothing names one), `told_traits` (what a job does otherwise, in words)
"""

from .coefficients import book
from .price import NOT_MODELLED, Setting, StepPrices, performance, price_layouts
from .quantities import RECOMPUTES, SCHEDULES, Grid

__all__ = [
    "NOT_MODELLED",
    "RECOMPUTES",
    "SCHEDULES",
    "Grid",
    "Setting",
    "StepPrices",
    "book",
    "performance",
    "price_layouts",
]
