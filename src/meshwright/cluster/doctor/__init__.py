"""The doctor: what of a machine, or of several, makes distributed training slow or hang, and how to mend it.

`gather()` reads the facts of one node, `exchange.meet()` brings the facts of all nodes of a job together, and each
check in `CHECKS` is a plain function from those facts to findings.
"""

from .checks import CHECKS, Check, Finding, examine
from .facts import NodeFacts, gather

__all__ = ["CHECKS", "Check", "Finding", "NodeFacts", "examine", "gather"]
