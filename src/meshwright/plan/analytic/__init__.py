"""Time and memory of layouts, term by term, over arrays: one code for one run and for 100,000 layouts."""

from .coefficients import book
from .price import NOT_MODELLED, Setting, StepPrices, performance, price_layouts
from .quantities import RECOMPUTES, SCHEDULES, Grid

__all__ = [
    "NOT_MODELLED",
    "RECOMPUTES",
    "SCHEDULES",
    "Grid",
    "Setting",
    "StepPrices",
    "book",
    "performance",
    "price_layouts",
]
