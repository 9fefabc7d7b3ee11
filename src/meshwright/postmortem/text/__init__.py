"""Text of a log into messages: whose each is, and of which run.

- `exports` with `export_records`, `viewers`: lines out of what services and viewers put around them
- `clocks` in lines; `newest_first`: a log that begins with its end, turned round
- `lines`: prefixes of launchers off, glued lines cut, wrapped lines joined; `labels` of programs
- `appended_runs`, `containers`: where one log holds several, one behind or beside the other
- `speakers`, `servers`, `sections`, `host_commands`, `coordinates` in a mesh: the rank of a line
- `mentions`: lines that only speak of faults
- `watchdog_words`: the group and rank of a line of c10d; `steps`: lines of a step that is done
"""
