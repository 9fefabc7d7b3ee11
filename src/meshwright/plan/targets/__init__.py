"""Questions asked backwards or of several machines: what a target needs, and what a change would give.

- `inverse`, `alternatives`: which network, how many GPUs, or what else reaches a target
- `whatif`: clusters side by side, and from one GPU to all; `envelope`: from a parameter count alone
- `budget`: days of a training
"""
