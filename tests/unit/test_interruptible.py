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


@pytest.mark.parametrize(("name", "said"), [("SIGINT", "interrupted\n"), ("SIGTERM", "left with 143\n")])
def test_a_signal_in_a_destructor_which_would_swallow_it_comes_once_that_is_left(name, said):
    program = f"""
import signal, sys, time
from meshwright import interruptible

class File:
    def __del__(self):
        signal.raise_signal(signal.{name})

signal.signal(signal.SIGINT, interruptible.interrupt)
signal.signal(signal.SIGTERM, interruptible.end)
sys.unraisablehook = interruptible.come_again
file = File()
try:
    del file
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
except SystemExit as leave:
    print("left with", leave.code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == (said, "")


def test_other_faults_in_destructors_are_printed_as_before():
    program = """
import sys
from meshwright import interruptible

class File:
    def __del__(self):
        raise ValueError("a bad end")

sys.unraisablehook = interruptible.come_again
File()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "ValueError: a bad end" in done.stderr


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
