"""The nouns that everything else speaks of: plain structs, and what may be asked of them. They import no other room.

- what one line says, with file and line: `facts`, of which `identities` (who is where), `paces` (of steps),
  `launch_counts` (calls that NCCL has launched) and `network_state` (devices beside any job) are kinds; `where` is the
  line
- what is made of facts: `calls` of groups, the `position` of the ranks, the `world` of ranks that there are
- the `verdict` with its `evidence`, and the `next_steps` to try; `names` of collectives in one spelling
"""
