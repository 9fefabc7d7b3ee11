"""The torch.distributed backend "meshwright", in five rooms; docs/backend.md shows which way a call takes through them.

- group: what torch sees. `process_group` (collectives), `send_receive`, `torch_group` (the rest), `overloads` and
  `arguments` (what may be passed), `fast_path` and `native_calls` with calls.c (usual blocking calls), `base` and
  `work` (now or later), `create` and `meeting` (how a group is made), `device_types`, `options`, `monitored`, `sparse`
- local: ranks of one host. `engine`, `ranks` (shared slots and counters), `move` and `reduce` (collectives in Python),
  `helper` with helper.c (the same in C), `memory` and `segment` (the shared memory), `slot_stores`, `waiting`, `sched`
- hosts: ranks of several hosts. `engine`, `network`, `choice` (which algorithm), `links` and `link_rates` (what the
  links carry), `placement` (who shares a host), `machine_names`, `addresses`
- wire: messages. `executor` and its parts (any schedule over any transport), `transport` and its kinds, `stream` with
  stream.c, `mailbox` and `lines` (send and receive)
- faults: who is to blame. `failures` (the errors), `agreement` (debug mode), `flight` (records of the last calls),
  `blame` and `blame_board` (whom ranks that wait for each other name)
"""
