"""Cache folders of tests that look at what is kept there, with the compiled helpers of this user in them."""

from pathlib import Path

from meshwright.backend.group.futures import load_futures
from meshwright.backend.group.native_calls import load_calls
from meshwright.backend.local.helper import load_helper
from meshwright.backend.wire.stream import load_stream
from meshwright.native import cache_folder
from meshwright.simulate.native import load_engine


def new_cache(home: Path) -> str:
    """Make a folder for XDG_CACHE_HOME that keeps no measurements and no tokens; return its path.

    The C helpers lie in it: a process that finds none compiles them first, which takes 20 s of a processor.
    """
    for load in (load_calls, load_engine, load_futures, load_helper, load_stream):
        load()
    folder, users = home / "meshwright", cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for library in [] if users is None else users.glob("*-*.so"):
        if not (folder / library.name).exists():
            (folder / library.name).symlink_to(library)
    return str(home)
