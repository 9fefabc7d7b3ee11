"""The verdict on each table of a file: right, wrong or not to be told, why, and what to expect."""

import math
from collections.abc import Sequence

import msgspec

from ...hardware import Catalogue
from ...units import counted, format_bytes, format_rate
from ..reading.identify import MOST_RANKS
from ..reading.tables import BETWEEN_TWO, ReadTable
from ..table import COUNTED, Row
from .messages import judge_messages
from .named_link import ABOVE_USUAL, BEYOND_RATE, GOOD, IS_USUAL, OWN_LINKS, named_link
from .rates import rates_verdict
from .settings import explained, keeps_off_nics, leaves_the_rack
from .shapes import collapse, decline, dip
from .verdict import TableVerdict
from .yardstick import Attainable, TableLinks, attainable, other_gpus, table_links

BEYOND = 1.15  # of the most that is attainable: then the links are others than those it is held against
LARGE = 64 * 2**20  # below this no collective fills its links
# what a collective must take at the links' rate to hide its start, which a faster link does not shorten: then they are
# full. A gather's ring takes as many steps as there are ranks. Until then the rate grows at least like the power 2/3 of
# the size, as in published all-reduces (105, 210, 280 and 350 GB/s at 64, 128, 256 and 1,024 MiB on 16 nodes of 8 x
# 400 Gb/s: nccl issue 1469; 494, 596, 680 and 743 at 512 MiB to 4 GiB on two racks: coreweave/nccl-tests pull 43)
FULL_S = {"all_reduce": 4e-3, "broadcast": 4e-3, "reduce": 4e-3, "all_to_all": 0.7e-3}
FULL_OF_A_RANK_S = {"all_gather": 0.15e-3, "reduce_scatter": 0.15e-3}
FULL_OF_A_PEER = 2**20  # bytes of an all-to-all, a gather, a scatter
TRAP = "ACS or the IOMMU on the path, no GPUDirect RDMA (NCCL_DEBUG=INFO names GDRDMA), or not all NICs in use"
EFA_TRAP = (
    "an old aws-ofi-nccl or NCCL, no GPUDirect RDMA (FI_EFA_USE_DEVICE_RDMA=1), not all EFA interfaces in use, or "
    "hosts of no common placement group"
)
SHOWN_SIZES = 4  # with wrong results, that a verdict names


def judge(
    catalogue: Catalogue,
    tables: Sequence[ReadTable],
    *,
    node: str | None = None,
    link: str | None = None,
    nics: int | None = None,
    nodes: TableLinks | None = None,
) -> list[TableVerdict]:
    """Return the verdict on each table of a file; `nodes` has the links of those of a cluster."""
    return [_judge(catalogue, tables, index, node, link, nics, nodes) for index in range(len(tables))]


def _judge(
    catalogue: Catalogue,
    tables: Sequence[ReadTable],
    index: int,
    node: str | None,
    link: str | None,
    nics: int | None,
    nodes: TableLinks | None,
) -> TableVerdict:
    table = tables[index]
    if table.wrong:
        return TableVerdict(
            ok=False,
            reason=f"results are wrong ({table.wrong} out of bounds{_wrong_sizes(table.rows)}): the data is damaged on "
            "its way, or the test itself is at fault",
        )
    if table.rates:
        return rates_verdict(catalogue, tables, index, link, nics)
    if table.alone:
        several = table.alone > 1 or (table.ranks or 1) > 1  # a single process with a single GPU may be what was wanted
        return TableVerdict(ok=False if several else None, reason=_alone(table))
    if table.unjudged == BETWEEN_TWO and table.rows:
        return judge_messages(catalogue, table.rows, link)
    if table.unjudged:
        return TableVerdict(ok=None, reason=table.unjudged)
    if node and link is None and (contradiction := other_gpus(catalogue, table, node)):
        return TableVerdict(ok=None, reason=contradiction)
    machine = table_links(catalogue, table, node, link, nics, nodes)
    over_network = link is not None and named_link(catalogue, link).link is None
    known = attainable(table, machine, over_network) if machine else None
    rows = sorted(table.rows, key=lambda row: row.bytes)
    if not rows:
        return TableVerdict(ok=None, reason="all its sizes are 0: nothing was sent; larger ones would tell")
    expected = _expected(known, rows) if known else None
    faults = [*table.failed, *table.doubled, *table.slow, *(fault for fault in (collapse(rows), dip(rows)) if fault)]
    if faults and not collapse(rows) and (falls := decline(rows)):
        faults.append(falls)
    if faults:
        faults += [_at_end(known, rows, expected)] if known and expected and collapse(rows) else []
        return TableVerdict(ok=False, reason="; ".join(faults), expected_bytes_per_s=expected)
    if table.collective is None and machine is not None and table.candidates:
        one_by_one = [
            (name, _judge(catalogue, _with_collective(tables, index, name), index, node, link, nics, nodes))
            for name in table.candidates
            if name in COUNTED
        ]
        return _of_candidates(one_by_one, _unknown(table, machine))
    if machine is None or known is None:
        ends = table.ranks_range if machine is not None and table.ranks is None else None
        of_ends = [
            _judge(catalogue, _with_ranks(tables, index, ranks), index, node, link, nics, nodes) for ranks in ends or ()
        ]
        return _alike(of_ends, ends) or TableVerdict(ok=None, reason=_unknown(table, machine))
    return _held_against(table, rows, machine, known)


_SHARING_OPEN = (
    "how many ranks share the NICs of a host is not known: --node says how many GPUs a host has, or keep the list of "
    "devices"
)


def _at_end(known: Attainable, rows: Sequence[Row], expected: float) -> str:
    """Return what the largest size of a table that collapses reached of what is expected, in words."""
    last = max(rows, key=lambda row: row.bytes)
    return (
        f"at {format_bytes(last.bytes)} it has {format_rate(last.busbw_bytes_per_s)} of the {format_rate(expected)} "
        f"that NCCL reaches ({known.of_links})"
    )


def _wrong_sizes(rows: Sequence[Row]) -> str:
    """Return at which sizes results were wrong, in words, "" where the rows do not tell."""
    sizes = [format_bytes(row.bytes) for row in sorted(rows, key=lambda row: row.bytes) if row.wrong]
    more = f" and {counted(len(sizes) - SHOWN_SIZES, 'other size')}" if len(sizes) > SHOWN_SIZES else ""
    return f", at {', '.join(sizes[:SHOWN_SIZES])}{more}" if sizes else ""


def _with_ranks(tables: Sequence[ReadTable], index: int, ranks: int) -> list[ReadTable]:
    """Return the tables, one of them as of `ranks` ranks."""
    replace = msgspec.structs.replace
    rows = tuple(replace(row, ranks=ranks) for row in tables[index].rows)
    return [*tables[:index], replace(tables[index], ranks=ranks, rows=rows), *tables[index + 1 :]]


def _with_collective(tables: Sequence[ReadTable], index: int, collective: str) -> list[ReadTable]:
    """Return the tables, one of them as of a collective."""
    replace = msgspec.structs.replace
    rows = tuple(replace(row, collective=collective) for row in tables[index].rows)
    told = replace(tables[index], collective=collective, candidates=(), rows=rows)
    return [*tables[:index], told, *tables[index + 1 :]]


def _of_candidates(found: Sequence[tuple[str, TableVerdict]], unknown: str) -> TableVerdict:
    """Return the verdict on a table of a collective that is not named: of all that it may be, where they agree."""
    judged = [(name, verdict) for name, verdict in found if verdict.expected_bytes_per_s is not None]
    if not judged:
        return TableVerdict(ok=None, reason=unknown)
    names: dict[str, list[str]] = {}
    for name, verdict in found:
        names.setdefault(verdict.reason, []).append(name)
    reason = "; ".join(f"as {' or '.join(of)}: {why}" for why, of in names.items())
    oks = {verdict.ok for _, verdict in found}
    rates = {verdict.expected_bytes_per_s for _, verdict in found}
    ok, expected = (oks.pop() if len(oks) == 1 else None), (rates.pop() if len(rates) == 1 else None)
    return TableVerdict(ok=ok, reason=f"{unknown.partition(':')[0]}; {reason}", expected_bytes_per_s=expected)


def _alike(of_ends: Sequence[TableVerdict], ends: tuple[int, int] | None) -> TableVerdict | None:
    """Return the verdict of the fewest and the most ranks that the bandwidths allow, where it is the same."""
    if ends is None or len({found.ok for found in of_ends}) > 1 or of_ends[0].ok is None:
        return None
    ranks = (
        f"{counted(ends[0], 'rank')} or more" if ends[1] >= MOST_RANKS else f"{ends[0]} to {counted(ends[1], 'rank')}"
    )
    return msgspec.structs.replace(of_ends[0], reason=f"with {ranks}: {of_ends[0].reason}")


def _alone(table: ReadTable) -> str:
    several = f"{counted(table.alone, 'process')} are each" if table.alone > 1 else "the process is"
    if table.ranks is not None and table.ranks > 1:
        return (
            f"{several} alone with {counted(table.ranks, 'rank')}: nothing went between them, for it was "
            "built without MPI=1"
        )
    return (
        f"{several} rank 0 of 1: nothing was sent. If several were started together, nccl-tests was built without MPI=1"
    )


def _unknown(table: ReadTable, machine: TableLinks | None) -> str:
    if table.collective is None:
        which = f" ({' or '.join(table.candidates)})" if table.candidates else ""
        return f"the collective is not known{which}: keep the line that names the program"
    if table.collective not in COUNTED:
        return f"{table.collective}: no yardstick for it"
    if table.ranks is None:
        return "the number of ranks is not known: keep the list of devices or the command"
    if machine is None:
        return "the hardware is not known: --node, or --link and --nics, say what it ran on"
    if table.collective == "all_to_all" and machine.nic is not None and table.ranks_per_node is None:
        return _SHARING_OPEN
    return "the path is not known: --node, or --link and --nics, say over which links it ran"


def _expected(known: Attainable, rows: Sequence[Row]) -> float:
    """Return the rate to name: the best algorithm's inside a node or once it is reached, else the plain one's."""
    best = max((row.busbw_bytes_per_s for row in rows), default=0.0)
    if known.in_slots:
        least = known.least_bytes_per_s
        return known.most_bytes_per_s if known.unclear and best > BEYOND * known.unclear[0] else least
    return known.most_bytes_per_s if not known.crosses or best > known.least_bytes_per_s else known.least_bytes_per_s


def _held_against(table: ReadTable, rows: Sequence[Row], machine: TableLinks, known: Attainable) -> TableVerdict:
    best = max(rows, key=lambda row: row.busbw_bytes_per_s)
    rate, expected = best.busbw_bytes_per_s, _expected(known, rows)
    against = f"{format_rate(rate)} of the {format_rate(expected)} that NCCL reaches{known.at_most(expected)}"
    against += f" ({known.of_links})"
    against = f"{format_rate(rate)} on {known.of}" if known.in_slots else against
    by_text = ", which the text names" if machine.is_named else ""
    said = f"; assumed {machine.assumed}{by_text}: --nics and --link say otherwise" if machine.assumed else ""
    said = said if known.crosses else ""
    if rate > max(BEYOND * known.most_bytes_per_s, BEYOND_RATE * known.limit_bytes_per_s):
        beyond = f"{against}: more than these carry, so it ran over others; --node, --link and --nics say over which"
        return TableVerdict(ok=None, reason=beyond + said, expected_bytes_per_s=expected)
    if known.unclear and BEYOND * known.unclear[0] < rate < GOOD * known.unclear[1]:
        between = f"{against}: more than PCIe and less than all bridges carry; --link says what joins the pair"
        return TableVerdict(ok=None, reason=between + said)
    if rate >= GOOD * known.least_bytes_per_s:
        apart = f"; {explained(table.settings)}" if known.crosses and leaves_the_rack(table.settings) else ""
        falls = f"; {fallen}" if (fallen := decline(rows)) else ""
        good = _good(table, rate, known, against, expected) + falls + apart + said
        return TableVerdict(ok=True, reason=good, expected_bytes_per_s=expected)
    full = _full_bytes(table, known.least_bytes_per_s)
    if rate >= GOOD * known.least_bytes_per_s * _filled(rows[-1].bytes, full):
        little = f"{format_bytes(rows[-1].bytes)} is too little to fill the links"
        return TableVerdict(
            ok=None,
            reason=f"{against}, but {little}: measure to {format_bytes(max(2**30, full))}",
            expected_bytes_per_s=expected,
        )
    is_used = known.crosses or table.path.is_listed or not table.path.sockets
    logged = f"NCCL's log shows {table.path.words}" if table.path.words and is_used else ""
    if known.shared_by_unknown:
        return TableVerdict(ok=None, reason=f"{against} if each rank has a NIC: {_SHARING_OPEN}")
    # where something is known to keep bytes off the NICs, their number is no question
    off_nics = table.path.sockets or keeps_off_nics(table.settings)
    if not off_nics and (fewer := _as_other_nics(rate, machine, known)):
        return TableVerdict(ok=None, reason=f"{against}, about what {fewer}{said}", expected_bytes_per_s=expected)
    apart = _as_hosts_apart(table, rate, machine)
    if apart and not known.crosses:  # nothing says that the hosts are of one rack
        return TableVerdict(ok=None, reason=f"{against}, {apart}", expected_bytes_per_s=expected)
    told = "; ".join(words for words in (explained(table.settings), logged) if words)
    reason = _bad(rate, machine, known, against, told) + (f"; {apart}" if apart else "") + said
    return TableVerdict(ok=False, reason=reason, expected_bytes_per_s=expected)


def _as_other_nics(rate: float, machine: TableLinks, known: Attainable) -> str:
    """Return which fewer or slower NICs than were assumed carry a rate, and what to say, "" where none would."""
    if not known.crosses or not known.needs_nics:
        return ""
    half, one = known.least_bytes_per_s / 2, machine.nic.attainable_bytes_per_s if machine.nic else None
    if known.nics == 1 and GOOD * half <= rate <= BEYOND * half:
        return "a NIC of half that rate carries: which is it?"
    if one and rate >= GOOD * one:
        return f"{round(rate / one) or 1} of its NICs carry: how many are there?"
    return ""


def _as_hosts_apart(table: ReadTable, rate: float, machine: TableLinks) -> str:
    """Return that hosts whose rack shares NVLink run as if each were alone, "" where they do not."""
    if (table.nodes or 1) < 2 or not machine.gpus or (machine.domain or 0) <= machine.gpus:
        return ""
    known = attainable(table, msgspec.structs.replace(machine, domain=machine.gpus))
    if known is None or not GOOD * known.least_bytes_per_s <= rate <= BEYOND * known.most_bytes_per_s:
        return ""
    return (
        f"what the NICs of hosts carry that share no NVLink ({format_rate(known.least_bytes_per_s)}): of other racks, "
        "or of one without MNNVL (NCCL_MNNVL_ENABLE, IMEX)"
    )


def _full_bytes(table: ReadTable, rate: float) -> int:
    """Return the size from which on a collective fills links on which it reaches a rate."""
    collective, ranks = table.collective or "", table.ranks or 1
    full_s = FULL_S.get(collective, FULL_OF_A_RANK_S.get(collective, 0.0) * ranks)
    shares = FULL_OF_A_PEER * ranks if collective in {"all_to_all", "gather", "scatter"} else 0
    return max(LARGE, round(full_s * rate), shares)


def _filled(size: int, full: int) -> float:
    """Return the share of the attainable rate that a sound system has at a size, 0 where it cannot be told."""
    return 0.0 if size < LARGE else min(1.0, math.pow(size / full, 2 / 3))


def _good(table: ReadTable, rate: float, known: Attainable, against: str, expected: float) -> str:
    if known.crosses and rate > ABOVE_USUAL * known.least_bytes_per_s:
        trees = table.nodes == 2 and table.collective == "all_reduce"
        is_above = rate > ABOVE_USUAL * expected
        above = (
            f"{IS_USUAL}{known.share_of_limit(rate)}"
            if is_above
            else (f"above the {format_rate(known.least_bytes_per_s)} of a ring")
        )
        fewer = "; between two nodes trees send less over them than rings" if trees else ""
        return f"{against}: {above}{_by_switches(table) or fewer}"
    if known.in_slots:
        return f"{against}; NCCL's log shows {table.path.words}" if table.path.shared_memory else against
    if not known.crosses and known.link_bytes_per_s < rate and known.least_bytes_per_s < known.most_bytes_per_s:
        return f"{against}: above the links' own rate, for the switch adds up (NVLS) and each byte crosses a link once"
    if not known.crosses and known.most_bytes_per_s > known.least_bytes_per_s and rate < GOOD * known.most_bytes_per_s:
        return f"{against}: what a ring reaches; the switch's own sum (NVLS) would reach more"
    return against


def _by_switches(table: ReadTable) -> str:
    """Return that switches may have added up, where NCCL's log names the plugin for it, "" elsewhere."""
    if not table.path.sharp or table.collective not in {"all_reduce", "reduce_scatter", "all_gather"}:
        return ""
    return "; NCCL's log names the SHARP plugin: where switches add up, each node sends its buffer once"


def _bad(rate: float, machine: TableLinks, known: Attainable, against: str, told: str) -> str:
    """Return that a rate is too low and why: what settings and log tell, else what it usually is."""
    share = f"{100 * rate / known.least_bytes_per_s:.0f} %" + (" of a ring's" if known.is_ring else "")
    if known.crosses:
        one = machine.nic.attainable_bytes_per_s if machine.nic else None
        used = ""
        if one and known.is_ring and known.nics > 1:
            used = (
                f"; about what {round(rate / one)} of {counted(known.nics, 'NIC')} carry"
                if rate >= GOOD * one
                else "; less than a single NIC carries"
            )
        return (
            f"{against}, {share}{used}: {told or (EFA_TRAP if machine.nic and machine.nic.family == 'efa' else TRAP)}"
        )
    host = machine.host_bytes_per_s
    if host and machine.link is not None and 0.6 <= rate / host <= 1.1 and machine.link.kind != "pcie":
        looks = f"{against}, {share}: it looks like PCIe in place of the GPUs' own links"
        return f"{looks}; {told}" if told else looks
    return f"{against}, {share}: {told or OWN_LINKS}"
