"""Messages: schedules compiled and executed over transports, and send and receive between two ranks.

- schedules: `executor_program` compiles what one rank does, `executor_layout` says where chunks lie,
  `executor_reduce` adds, `executor` runs it
- `transport`: the interface, and between threads; `transport_shm`, `transport_device`, `transport_torch`, and
  `transport_tcp` over `transport_stream`, with `stream` and stream.c
- send and receive: `mailbox` over `lines` (shared memory or a TCP connection)
"""
