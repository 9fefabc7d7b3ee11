"""The doctor: what of a machine, or of several, makes distributed training slow or hang, and how to mend it.

`gather_facts()` reads the facts of one node, `exchange.meet_nodes()` those of all nodes of a job together, and each
check in `CHECKS` is a plain function from those facts to findings.

- `facts` of one node, `exchange` of all; `interfaces` (which one Gloo and NCCL would take)
- `checks`: from facts to findings; `report`: facts without names, for strangers; `stacks` of running ranks
"""

from .checks import CHECKS, Check, Finding, run_checks
from .facts import NodeFacts, gather_facts

__all__ = ["CHECKS", "Check", "Finding", "NodeFacts", "gather_facts", "run_checks"]
