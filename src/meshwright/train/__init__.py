"""Training: a job from its configuration, or from a plan, to its last checkpoint.

The way of a job: `planned` (the job that a plan describes) -> `prepare` (discover and check; `choice` calibrates,
prices and takes a layout) -> `launch` starts the ranks, or `__main__` is one that another launcher started ->
`worker` (one rank: join, train, hand in) -> `loop`. `replan` makes the plan for the ranks that are there.

Rooms, each of which imports only from those above it:

- `job`: configuration, precision, the environment of a launcher
- `run`: the folder of a run with its locks, events and log
- `measure`: what a rank did when, memory, stragglers
- `data`: text, tokens, batches
- `model`: decoder, optimizer, the graph of a step
- `checkpoint`: saved, checked and gone on from; to and from the format of Hugging Face
- `integrity`: wrong numbers, from silent data corruption to losses that are not finite
- `elastic`: the ranks of a job, where they meet, how they are started again and how they end
- `asynchronous`: parameter servers, local SGD and DiLoCo
"""
