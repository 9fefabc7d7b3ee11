"""GPUs that `--cluster` counts: all of them, or those of a node."""


def gpus_of_cluster(name: str | None) -> int | None:
    """Return how many GPUs a cluster has whose name or file counts them; None for a type of node, of any number."""
    from ..cluster.wire import names_file, read_cluster
    from ..hardware import load_catalogue
    from ..hardware.cards import cards_told

    if name is None:
        return None
    return read_cluster(name).num_gpus if names_file(name) else cards_told(load_catalogue(), name)


def gpus_of_node(name: str | None) -> int | None:
    """Return the GPUs that drivers list of a node type, by any of its names; None for a cluster of another kind."""
    from ..hardware import load_catalogue

    catalogue = load_catalogue()
    return round(catalogue.listed_node(name).gpus.number) if name and catalogue.is_node(name) else None
