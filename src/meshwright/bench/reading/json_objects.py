"""JSON objects in a text that may hold other lines too: of a tool that was asked for JSON, below its command."""

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_OBJECTS = 100  # that are looked at in a text, where nothing else is said
_BEGIN = re.compile(r"^[ \t>]*\{", re.M)


def json_objects(text: str, most: int = MOST_OBJECTS) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that begin a line of a text, alone or between prose and fences."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(most):
        begin = _BEGIN.search(text, at)
        if begin is None:
            return
        try:
            data, at = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            at = begin.end()
        else:
            if isinstance(data, dict):
                yield data
