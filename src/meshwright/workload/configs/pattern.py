"""The kinds of a hybrid's layers, by a list or by a period."""

from ..kinds import Attention
from .reader import ConfigReader


def layer_types(c: ConfigReader, count: int, default: list[str], *also: str, further: int = 0) -> list[str]:
    """Return the kind of each layer as the config lists them, else the default.

    `also`: words beside full_attention and those of the default, in place of linear_attention; `further`: words of as
    many layers that predict further tokens may follow.
    """
    c.skip("full_attention_interval")
    found = c.words("layer_types", count, further)
    known = {"full_attention", *default, *(also or ("linear_attention",))}
    for kind in found or ():
        if kind not in known:
            raise ValueError(f"layer_types: expected {', '.join(sorted(known))}, got {kind!r}")
    return found or default


def every_full(c: ConfigReader, count: int, period: int, offset: int = -1) -> list[str]:
    """Return layer types of which each so-many-th is full attention, the last of each period or that at `offset`."""
    at = offset % period if period else 0
    return ["full_attention" if period and i % period == at else "linear_attention" for i in range(count)]


def head_norms_of(mixer: Attention) -> int:
    """Return the parameters of the norms of queries and keys, a head wide."""
    return 2 * mixer.head_dim
