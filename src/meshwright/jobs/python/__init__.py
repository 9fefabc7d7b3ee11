"""Python, never imported: configurations as data, and programs that train.

- `static`: a configuration; `script`: a program, followed to the call that trains; of Lightning's `lightning_fit`
- `defaults` of a program's own flags
- `values`, `operators` on them, `calls` whose result is known, `functions`, `imports` from the job's own source tree
"""
