"""Pickles of flight records, by an unpickler that builds plain containers and numbers and refuses every other name.

Nothing in such a file is executed: a pickle that names a class or a function of any module is refused by that name.
"""

import io
import pickle
from typing import Any

from ..errors import InputError

_FIRST = b"\x80"  # every pickle of protocol 2 and above begins with it


class _Plain(pickle.Unpickler):
    """Knows no class and no function."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module_name}.{global_name}, which is no plain value")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("refers to an object outside the file")


def is_pickle(data: bytes) -> bool:
    """Whether a file begins as a pickle does."""
    return data[:1] == _FIRST and data[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}


def load_plain(data: bytes, *, where: str) -> Any:
    """Return the value of a pickle made of dicts, lists, tuples, texts and numbers alone; InputError for any other."""
    try:
        return _Plain(io.BytesIO(data)).load()
    except pickle.UnpicklingError as error:
        raise InputError(f"{where}: refused: the pickle {error}; expected plain containers and numbers") from None
    except Exception as error:  # a truncated or damaged pickle raises whatever its opcodes run into
        raise InputError(f"{where}: not a whole pickle ({type(error).__name__}: {error})") from None
