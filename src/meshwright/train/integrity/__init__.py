"""Wrong numbers: found before they are saved, and the rank that made them.

- `finite`: losses and states that are NaN or infinite
- `guard`: copies that differ, by the `replicas` of a layout and their `checksums`
- `replay`: gradients computed twice
- `corruption`: the errors; `rank_context`: the rank that checks; `flips`: bits flipped on purpose, to try it out
"""
