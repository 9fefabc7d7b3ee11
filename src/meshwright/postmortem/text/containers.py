"""Containers of one log, as Docker Compose puts them side by side: each may be a job of its own."""

import re
from collections.abc import Sequence

from .lines import LogMessage
from .steps import is_step

_EXITED = re.compile(r"^(?P<container>\w[\w.-]*) exited with code (?P<code>\d{1,3})$")
_TAKEN_IN = re.compile(r"\b(?:torchft|quorum|restart\w*|re-?rendezvous|re-?join\w*|shrink\w*)\b", re.IGNORECASE)
_FOR_LONG = 12  # steps that one made after another had ended: ranks of one job wait for each other long before


def without_jobs_that_ended_well(messages: Sequence[LogMessage]) -> list[LogMessage]:
    """Return the messages without those of containers that are a job of their own and ended well.

    Such a container has an exit code of 0, and made many steps after another one had ended with an error, without a
    word of having started anew without it.
    """
    exits = {found: at for at, one in enumerate(messages) if "exited with" in one.text if (found := _exit(one.text))}
    failed = [at for (_, code), at in exits.items() if code]
    well = {container for container, code in exits if not code} - {container for container, code in exits if code}
    if not failed or not well:
        return list(messages)
    first = min(failed)
    others = {one for one in well if _trains_on([m for m in messages[first:] if m.host == one])}
    return [one for one in messages if one.host not in others and (_exit(one.text) or ("", 0))[0] not in others]


def _exit(text: str) -> tuple[str, int] | None:
    """Return the container of which Compose says how it ended, and its exit code."""
    found = _EXITED.match(text.strip())
    return (found["container"], int(found["code"])) if found else None


def _trains_on(messages: Sequence[LogMessage]) -> bool:
    """Whether the messages of one container go on with steps as if nothing had happened."""
    is_anew = any(_TAKEN_IN.search(one.text) for one in messages)
    return not is_anew and sum(is_step(one.text) for one in messages) >= _FOR_LONG
