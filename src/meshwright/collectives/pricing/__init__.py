"""The price of a schedule: its `figures` and their closed `formulas`, and `price`, its seconds on a `network`."""
