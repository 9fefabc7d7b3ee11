"""The sources of the optional C and C++ parts lie where their modules look, beside what they include."""

import re

import pytest

from meshwright.backend.group import futures, native_calls
from meshwright.backend.local import helper
from meshwright.backend.wire import stream


@pytest.mark.parametrize("module", [helper, stream, native_calls, futures], ids=lambda module: module.__name__)
def test_a_source_is_there_with_every_header_of_ours(module):
    included = re.findall(r'#include "([^"]+)"', module.SOURCE.read_text())

    assert all((module.SOURCE.parent / name).exists() for name in included)
