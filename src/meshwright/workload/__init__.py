"""The work of one training step, layer by layer: FLOPs, bytes, activations.

- models: `models` (the catalogue), `configs` (config.json) -> `architecture` of `kinds` of layers (`attention_kinds`,
  `recurrent_kinds`); `adapters`
- our decoder: `transformer` (numbers), `functional` (torch), `float8`; as `graph` (the Workload) and `chain`
- a step: `elements` (bytes by type); `conventions`, `convention_words` and `engines` (what stacks do, what engines run)
  -> `split` (what is sent), `held` (what is kept) -> `weight_traffic` (of weights, when in a step) -> `assembly` (of
  parts, for each engine; `stages`: those of a graph) -> `program`; `routing` of experts, `recomputed` modules,
  `holdings` of our own engine
"""
