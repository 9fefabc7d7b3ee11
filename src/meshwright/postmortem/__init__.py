"""The post-mortem of a hung job: what its files tell of who kept the others waiting, by named rules.

The way of a file through the package, top to bottom:

- `files`, `inputs`: files and folders, each once; what the whole job is judged by (`rules.Case`)
- `lines`: text into messages, prefixes off, glued lines cut, wrapped lines joined
- `watchdog`, `nccl`, `system`, `pods`, `batch`, `endings`, `launchers`, `stacks`, `kernels`: messages into `facts`
- `pickles`, `flight`: flight records into groups of `calls`
- `timeouts`, `notices`, `opcount`, `spoken`: facts of logs into groups, and what silence is worth (`world`)
- `agreement`, `waits`, `standing`: groups and stacks into a `position`: the call that hangs, who is in it, who is not
- `causes`: the fault that came first
- `rules`, `verdict`: all of it into a verdict, with the lines that show it (`evidence`)
- `page`, `timeline`: the verdict as HTML
"""
