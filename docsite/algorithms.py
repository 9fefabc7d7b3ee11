"""The page "Collectives, one by one": of every algorithm what it does, its time, its picture, where it comes from."""

from typing import NamedTuple

from meshwright.collectives.catalogue import algorithm_names, build_schedule, describe_algorithm
from meshwright.collectives.schedules.draw import draw_svg, title
from meshwright.collectives.schedules.schedule import COLLECTIVES, Schedule

DRAWN_RANKS = 4

CHAN = (
    "Chan, Heimlich, Purkayastha, van de Geijn 2007, Collective communication: theory, practice, and experience, "
    "Concurrency and Computation 19(13)"
)
THAKUR = (
    "Thakur, Rabenseifner, Gropp 2005, Optimization of collective communication operations in MPICH, Int. J. High "
    "Performance Computing Applications 19(1)"
)
BRUCK = (
    "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, Efficient algorithms for all-to-all communications in multiport "
    "message-passing systems, IEEE Trans. Parallel and Distributed Systems 8(11)"
)
RING = (
    "Patarasuk, Yuan 2009, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel and "
    "Distributed Computing 69(2)"
)
RABENSEIFNER = "Rabenseifner 2004, Optimization of collective reduction operations, ICCS"
TWO_TREES = (
    "Sanders, Speck, Träff 2009, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel "
    "Computing 35(12); NCCL has it since 2.4"
)
CHAIN = (
    "Pješivac-Grbović, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007, Performance analysis of MPI collective "
    "operations, Cluster Computing 10"
)
BARRIER = "Hensgen, Finkel, Manber 1988, Two algorithms for barrier synchronization, Int. J. Parallel Programming 17(1)"
SERVER = "Li et al. 2014, Scaling distributed machine learning with the parameter server, OSDI"
LEVELS = "Jia et al. 2018, Highly scalable deep learning training system with mixed-precision, arXiv 1807.11205"
DEFINITION = "the definition"


class Account(NamedTuple):
    """The time of an algorithm on equal links, in rounds that wait for each other, and its source.

    Latencies and times that the payload passes a link, for P ranks (a power of two), as Python reads it.
    """

    latencies: str
    payloads: str
    source: str


ACCOUNTS: dict[str, dict[str, Account]] = {
    "all_reduce": {
        "parameter_server": Account("2", "2*(P-1)", SERVER),
        "naive": Account("P*(P-1)", "P*(P-1)", f"{DEFINITION}: a reduce to each rank in turn"),
        "staggered": Account("P-1", "P-1", "the naive one, its messages moved to where links are free"),
        "partitioned": Account("2", "2*(P-1)/P", "a direct reduce-scatter and all-gather; two-shot in TensorRT-LLM"),
        "partitioned_staggered": Account("2*(P-1)", "2*(P-1)/P", f"pairwise exchange twice: {THAKUR}"),
        "ring": Account("2*(P-1)", "2*(P-1)/P", RING),
        "halving_doubling": Account("2*log2(P)", "2*(P-1)/P", f"{RABENSEIFNER}; {THAKUR}"),
        "recursive_doubling": Account("log2(P)", "log2(P)", THAKUR),
        "tree": Account("2*log2(P)", "2*log2(P)-1", TWO_TREES),
        "tree_pipelined": Account("2*log2(P)+7", "2+(2*log2(P)-3)/8", f"{TWO_TREES}; here in 8 pieces, P from 4 on"),
        "one_shot": Account("1", "P-1", f"{DEFINITION}; one-shot in TensorRT-LLM"),
    },
    "reduce": {
        "linear": Account("1", "P-1", DEFINITION),
        "binomial": Account("log2(P)", "log2(P)", CHAN),
        "chain": Account("P+2", "(P+2)/4", f"{CHAIN}; here in 4 pieces"),
    },
    "broadcast": {
        "linear": Account("1", "P-1", DEFINITION),
        "binomial": Account("log2(P)", "log2(P)", CHAN),
        "scatter_gather": Account("log2(P)+P-1", "2*(P-1)/P", f"{THAKUR}; MPICH's for large payloads"),
        "chain": Account("P+2", "(P+2)/4", f"{CHAIN}; here in 4 pieces"),
    },
    "scatter": {"linear": Account("1", "(P-1)/P", DEFINITION), "binomial": Account("log2(P)", "(P-1)/P", CHAN)},
    "gather": {"linear": Account("1", "(P-1)/P", DEFINITION), "binomial": Account("log2(P)", "(P-1)/P", CHAN)},
    "all_gather": {
        "direct": Account("1", "(P-1)/P", DEFINITION),
        "pairwise": Account("P-1", "(P-1)/P", THAKUR),
        "ring": Account("P-1", "(P-1)/P", CHAN),
        "doubling": Account("log2(P)", "(P-1)/P", THAKUR),
        "dissemination": Account("log2(P)", "(P-1)/P", BRUCK),
    },
    "reduce_scatter": {
        "direct": Account("1", "(P-1)/P", DEFINITION),
        "pairwise": Account("P-1", "(P-1)/P", THAKUR),
        "ring": Account("P-1", "(P-1)/P", CHAN),
        "halving": Account("log2(P)", "(P-1)/P", THAKUR),
        "dissemination": Account("log2(P)", "(P-1)/P", f"{BRUCK}, backwards"),
    },
    "all_to_all": {
        "linear": Account("1", "(P-1)/P", DEFINITION),
        "pairwise": Account("P-1", "(P-1)/P", THAKUR),
        "bruck": Account("log2(P)", "log2(P)/2", BRUCK),
    },
    "barrier": {"central": Account("2", "0", DEFINITION), "dissemination": Account("log2(P)", "0", BARRIER)},
    "send": {"direct": Account("1", "1", DEFINITION)},
    "copy": {"local": Account("0", "0", DEFINITION)},
    "signal": {"direct": Account("1", "0", DEFINITION)},
}

INTRODUCTION = f"""# Collectives, one by one

P ranks, N bytes, links of B bytes a second and direction with a latency of α, each rank sending and receiving at once.
The times are those of rounds that wait for each other, for P a power of two; a test holds each against the priced
schedule. What the ranks do outside powers of two, on real links, or without waiting for the round, `meshwright
collectives price` tells. N is the payload as nccl-tests count it: what each rank has in the end, or has in the
beginning.

Pictures are for {DRAWN_RANKS} ranks, time from top to bottom: blue arrows copy, red ones reduce, grey ones only signal.
How schedules are written, proved and run: [Collectives as data](collectives.md); what the commands print of each: [What
is in the box](generated/box.md).
"""


def algorithms_page() -> str:
    """Return the page as Markdown; its pictures are those of `pictures`."""
    parts = [INTRODUCTION.rstrip()]
    for collective in COLLECTIVES:
        parts.append(f"## {collective.replace('_', '-').capitalize()}")
        parts += [_section(collective, name) for name in algorithm_names(collective)]
    return "\n\n".join(parts) + "\n"


def formula(account: Account) -> str:
    """Return the time as a reader writes it: "2(P-1) α + 2(P-1)/P N/B"."""
    terms = []
    for factor, unit in ((account.latencies, "α"), (account.payloads, "N/B")):
        if factor != "0":
            text = factor.replace("*log2(P)", " log2 P").replace("log2(P)", "log2 P").replace("*", "")
            bare = text == "1"
            sum_of = any(sign in text.replace("(P-1)", "").replace("(P+2)", "") for sign in "+-")
            terms.append(unit if bare else f"({text}) {unit}" if sum_of else f"{text} {unit}")
    return " + ".join(terms) or "0"


def pictures() -> dict[str, str]:
    """Return the pictures of the page, SVG by path beside it."""
    return {_path(kind, name): draw_svg(_drawn(kind, name)) for kind in COLLECTIVES for name in algorithm_names(kind)}


def _drawn(collective: str, name: str) -> Schedule:
    per_node = DRAWN_RANKS // 2 if name == "hierarchical" else None
    return build_schedule(collective, name, DRAWN_RANKS, ranks_per_node=per_node)


def _path(collective: str, name: str) -> str:
    return f"algorithms/{collective}-{name}.svg"


def _section(collective: str, name: str) -> str:
    if name == "hierarchical":
        time, source = "the inner one's and the outer one's, each on its own links", LEVELS
    else:
        account = ACCOUNTS[collective][name]
        time, source = f"`{formula(account)}`", account.source
    heading = f"### {name.replace('_', ' ').capitalize()} {{ #{collective}-{name} }}"
    picture = f"![{title(_drawn(collective, name))}]({_path(collective, name)})"
    return f"{heading}\n\n{describe_algorithm(collective, name)}\n\nTime: {time}. Source: {source}.\n\n{picture}"
