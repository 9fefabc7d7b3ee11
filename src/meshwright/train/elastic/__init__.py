"""The ranks of a job: started by torchrun's agent, started again where one has died, and ended.

- `meeting`: stores that a job alone can use, `store` (the client) and `store_server`; `clock`: that of their host
- `agent`: starts the ranks of one machine, again and again; `rank_exit`: how they end
- `watch`: beside a rank that trains, sees the others die; `surroundings`: signals to stop, and a standard error that
  nobody hears
"""
