"""The post-mortem of a hung job: what its files tell of who kept the others waiting, by named rules.

The way of a file: `files` finds it, `archives` unpack it, `inputs` reads it by what it is, with the `readers` into
facts, and makes a `case` of all facts and records; `rules` decide, among them `first_fault`, `heartbeats`,
`lost_numbers` and `lost_workers`; `past_the_end` says of a verdict that the training was over; `naming` is the gate
that it passes before it names a rank. `live` asks the ranks of a run that still goes on.

Rooms, each of which imports only from those above it:

- `nouns`: facts, calls, position, verdict
- `text`: text into messages
- `positions`: the call in which ranks hang, from groups of calls and from stacks
- `ranks`: the rank of a host, process, GPU or error
- readers, messages into facts: `surroundings` (kernel, launchers, batch systems), `tools` (stacks, tables of processes
  and GPUs), `libraries` (torch, NCCL and others), `scripts` (people's own); `flight_records`
- `groups`: facts of logs into groups of calls
- `reasons`: what failed first, who is slow, what runs on
- `page`: the verdict as HTML
"""
