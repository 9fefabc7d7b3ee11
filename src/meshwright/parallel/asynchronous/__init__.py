"""Data parallelism in which nobody waits: servers hold the weights, workers come and go.

    worker    ── join / next ──>     coordinator   who is in, who trains which share of the data, who waits for whom
              ── contribute ──>
              ── put / read ──>      servers       a slice of the weights each, with its optimiser

The coordinator lives in the first server. It decides and moves no tensors; the servers do what it says and decide
nothing. A parameter server and local SGD differ in what a contribution is (a gradient; the way that a worker's weights
went since the last time), in which optimiser the servers run (the job's; an outer one), and in whom a contribution
waits for (workers within the bound of staleness; all who are in).

- `worker` with its `client`; `server` with its `pieces`
- `coordinator` with `members`, `leases`, `server_group`, `ledger`
- `messages` over a `connection`
"""
