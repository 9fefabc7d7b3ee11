"""The search for the best layout, and what it found.

- `explore`: enumerate, price, rank (`plan`); `measured_search`: which layouts `train` measures
- `study`: all that was found; `reasons`: why the winner wins; `that_fit`: what lets a layout fit that does not
- `engine`: kept to what an engine can run; `engine_comparison`: one layout under other engines
- `simulated`, `refine`: the best layouts once more, event by event
- `modes`, `asynchronous`: asynchronous data parallelism beside the best synchronous layout
"""
