"""A pickle that does something when it is loaded."""

import os
from pathlib import Path


class Payload:
    """An object whose pickle, when loaded, makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)
