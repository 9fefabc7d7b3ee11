"""Tables of measured runs, as inputs of the cost model.

- a file: `lines` (its cells, and where its header stands), `reading` (its columns)
- a cell: `cells`, `figures` (measured ones), `columns` (which there are, with what each means), `names` (of them),
  `engine_cells` (under names of other engines), `mesh_cells` (of MaxText's meshes),
  `gpu_cells` (of nodes, for GPUs), `batch_cells` (of a GPU or rank, for a step)
- what a row does not name: `engine_named` (by columns and words), `row_stack`; FLOPs in place of a time: `told_flops`
- a row: `row_machine`, `row_model`, `row_layout`, `runs`; rows as arrays: `batch`; what they leave unsaid: `settled`
- measured cells that cannot be what they say: `other_readings`
"""
