"""Plan, run and verify distributed PyTorch training."""

__version__ = "0.1.0"
