"""Options of a group: the algorithm between hosts and the element type on the wire."""

import os

import msgspec
import torch

from ...errors import InputError, nearest

ALGORITHM_VARIABLE = "MESHWRIGHT_ALGORITHM"
WIRE_VARIABLE = "MESHWRIGHT_WIRE"
WIRE_TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class GroupOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of one group, as `pg_options` of `init_process_group` and `new_group`.

    `algorithm` is the all-reduce between hosts, `wire` the type in which float32 sums cross the network ("bf16",
    "fp16" or "fp32"). "" leaves it to `MESHWRIGHT_ALGORITHM` and `MESHWRIGHT_WIRE`, and to the price where those are
    not set. Must be equal on all ranks.
    """

    algorithm: str = ""
    wire: str = ""


def resolved(given: object) -> GroupOptions:
    """Return the options of a group with what the environment says where they say nothing; InputError for bad ones."""
    if given is not None and not isinstance(given, GroupOptions):
        raise InputError(f"pg_options: expected meshwright's GroupOptions, got {type(given).__name__}")
    options = given or GroupOptions()
    algorithm, source = options.algorithm, "GroupOptions.algorithm"
    if not algorithm:
        algorithm, source = os.environ.get(ALGORITHM_VARIABLE, ""), ALGORITHM_VARIABLE
    if algorithm:
        from ...collectives.catalogue import ALL_REDUCE  # for groups that name one

        if algorithm not in ALL_REDUCE:
            raise InputError(f"{source}={algorithm}: no such all-reduce ({nearest(algorithm, ALL_REDUCE)})")
    wire, source = options.wire, "GroupOptions.wire"
    if not wire:
        wire, source = os.environ.get(WIRE_VARIABLE) or "fp32", WIRE_VARIABLE
    if wire not in WIRE_TYPES:
        raise InputError(f"{source}={wire}: expected {', '.join(WIRE_TYPES)}")
    return GroupOptions(algorithm=algorithm, wire=wire)
