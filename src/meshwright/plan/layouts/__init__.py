"""Layouts of a model: legal ones, what a stack can run, and what a user asked for.

- `legality`: every rule that one layout breaks, in words; `space`: all legal layouts as arrays
- `stacks`: the closed set of software stacks; `filters`: what a stack runs, and `--only` and `--not`
- `stated`: the text of a layout beside what its stack has by default
- `releases`: what recipes of a stack's newest release switch on
"""
