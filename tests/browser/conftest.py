"""Chromium without a window, for tests that open the pages."""

import pytest

from testkit.chromium import Browser, missing


@pytest.fixture(scope="module")
def browser():
    """Return a browser that collects what the page's console says."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with Browser() as opened:
        yield opened
