"""Reasons beyond a position: what failed first, who is slow, which job runs on.

- `causes`: the first fault; `kills`: whom a kernel killed for memory; `traps`: GPU faults of programs;
  `unlike_versions`: the few that have another version
- `slow_ranks`: who is slow, by all that tells it; `slow_links`: a port that makes steps last longer;
  `recorded_waits`: by flight records of a job that moves on
- `network_alarms`: devices that show trouble by themselves; `running`: jobs that go on
"""
