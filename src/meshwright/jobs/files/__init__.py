"""Files that hold a job's commands or configuration inside something else.

- commands: `makefile` and `justfile` as `recipes`, `notebook`, `kubernetes`, a launcher's `manifest`, `sagemaker`,
  `modal`, `dockerfile`, `vertex`, `python_launcher`, any of them as a `template`
- configuration: `hydra`, a tree of YAML
"""
