"""Shell scripts, never run: which commands a script would start, with which words.

- `script` follows one, by its `syntax`; `state` is what it has set so far
- `words`: expansion, with `braces`; `marks` of what only a running shell knows
- `builtins`, `conditions`, `printf`, `output` of commands in `$(...)`
- files that are `edited`, with the `filters` of text, their `patterns`, and `queries` of jq and yq
- `calls` of other shells, scripts `submitted` to batch systems
"""
