"""The event engine: tasks on devices, flows on links.

- the question: `traffic` of a `collective`, or a `step` with its `axes`, as a `problem` on a `topology`
- beside an algorithm: the way of the `libraries`
- topologies: `nodes` in a fabric (`ports`): `fattree`, `dragonfly`, `torus`
- made small: `fold` (equal parts), `bounds` (where even that is too much); `unroll` into a `program`
- the engine: `engine` (NumPy) and `native` with engine.c; `maxmin` sharing, `arrays`
"""
