"""What moves bytes: transports, the executor of schedules, and the torch.distributed backend "meshwright".

Files by what they do (ARCHITECTURE.md shows which way a call takes):

- the group that torch sees: process_group, messages, group, torch_group, overloads, arguments, tensors, work, futures,
  options, create, monitored, marks, mixed, sparse
- the short ways of usual calls: usual in Python, calls with calls.c
- ranks of one host: engine, local and its parts, helper with helper.c, segment, memory, filling, waiting, turns
- ranks of several hosts: hosts, hosts_engine, hosts_network, choice, link_rates, links, executor and its parts
- messages and connections: transport and its kinds, stream with stream.c, lines, mailbox, meeting, reach, addresses,
  doorway
- who is to blame: signature and agreement (different calls), failures, flight (records), hearsay and words (who waits
  for whom)
"""
