"""A signal to stop while torch is loaded."""

import signal
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from meshwright import interruptible


@pytest.fixture
def torch_spec(monkeypatch):
    """Have a module in torch's place; yield its description."""
    module = ModuleType("torch")
    module.__spec__ = ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", module)
    before = signal.signal(signal.SIGINT, interruptible.interrupt)  # ignored in some shells' background
    yield module.__spec__
    signal.signal(signal.SIGINT, before)


def load(spec):
    spec._initializing = False
    time.sleep(10)


def test_an_interrupt_waits_until_torch_is_loaded_which_would_abort_the_process(torch_spec):
    torch_spec._initializing = True

    interruptible.interrupt(signal.SIGINT, None)
    time.sleep(3 * interruptible.LOOK_S)

    with pytest.raises(KeyboardInterrupt):
        load(torch_spec)


def test_otherwise_it_is_raised_at_once(torch_spec):
    with pytest.raises(KeyboardInterrupt):
        interruptible.interrupt(signal.SIGTERM, None)


def test_ctrl_c_in_a_callback_of_the_import_system_comes_once_that_is_left():
    program = """
import signal, time, weakref
from meshwright import interruptible

class Lock:
    pass

signal.signal(signal.SIGINT, interruptible.interrupt)
text = "def callback(_): signal.raise_signal(signal.SIGINT)"
exec(compile(text, interruptible.IMPORT_SYSTEM, "exec"))
lock = Lock()
watch = weakref.ref(lock, callback)
try:
    del lock
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("interrupted\n", "")
