"""Tables of measured runs, as inputs of the cost model.

- a file: `reading`
- a cell: `cells`, `columns` (which there are, with what each means)
- a row: `row_model`, `row_layout`, `runs`; rows as arrays: `batch`; what they leave unsaid: `settled`
- measured cells that cannot be what they say: `other_readings`
"""
