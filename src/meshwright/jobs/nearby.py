"""Nearby files: the one that a script, command or configuration names by a path of the machine that it runs on.

A path is known by its end: `$ROOT/configs/zero2.json` is `configs/zero2.json` of the folder that the job's first file
is in, or of a folder above it, up to the root of its repository.
"""

import contextlib
from pathlib import Path, PurePath

from .shell.marks import without_unknown

MOST_FOLDERS = 4  # of which the first is the one that the job's first file is in


def nearby(folder: Path, path: str, *, whole: bool = False) -> Path | None:
    """Return the file that a path names, by its longest end that is there; None where none is.

    By its bare name a file is taken from beside the job's first file, or from the folder that `../` says. With `whole`
    no part of the path may be left out.
    """
    parts = [part for part in PurePath(without_unknown(path)).parts if part not in {"/", "."}]
    ups = parts.count("..")
    last = len(parts) - 1 - parts[::-1].index("..") if ups else -1
    tail = [part for part in parts[last + 1 :] if not part.startswith("~")]
    folders = _folders(folder)
    for place in range(1 if whole else len(tail)):
        end = tail[place:]
        for above, base in enumerate(folders):
            if above and len(end) == 1 and not (above == ups and not place):
                continue
            found = base.joinpath(*end)
            with contextlib.suppress(OSError):  # a name that no file can have
                if found.is_file():
                    return found
    return None


def _folders(folder: Path) -> list[Path]:
    """Return a folder and those above it: up to the root of its repository, else a few; never the top of all."""
    found = [folder]
    here = folder.resolve()
    for above in here.parents[: MOST_FOLDERS - 1]:
        if (found[-1] / ".git").exists() or above == above.parent:
            break
        found.append(above)
    return found
