"""The methods of a C++ process group in a group of ours: every method, or a refusal by its name."""

import pytest
import torch
from torch._C._distributed_c10d import Backend
from torch.distributed import ProcessGroup

from meshwright.backend.group.device_types import MixedGroup
from meshwright.backend.group.process_group import MeshwrightGroup
from meshwright.backend.group.torch_group import REFUSED, TorchGroup

# The C++ group under ours answers these by itself: numbers that it was made with, and what belongs to the class.
OF_THE_CLASS = {"rank", "size", "unbox", "_id", "BackendType", "_pybind11_conduit_v1_", "Options"}


@pytest.mark.parametrize("kind", [MeshwrightGroup, MixedGroup])
def test_every_method_of_a_group_in_c_is_there_or_refused(kind):
    ours = {name for each in kind.__mro__[: kind.__mro__.index(ProcessGroup)] for name in vars(each)}
    theirs = {name for name in dir(ProcessGroup) if not name.startswith("__") and name not in OF_THE_CLASS}
    theirs -= set(ProcessGroup.BackendType.__members__)

    assert theirs - ours == set()


@pytest.mark.parametrize("kind", [MeshwrightGroup, MixedGroup])
def test_a_group_is_called_like_the_backend_in_c_for_which_it_stands(kind):
    theirs = {name: each for name, each in vars(Backend).items() if not name.startswith("__")}
    for name in theirs.keys() - OF_THE_CLASS - {"mem_allocator"}:  # a property, of which there is none
        assert callable(getattr(kind, name)) == callable(theirs[name]), name


def test_a_group_says_that_it_allocates_no_tensors():
    assert TorchGroup.supports_tensor_alloc(object(), torch.device("cpu")) is False


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_by_its_name(name):
    with pytest.raises(NotImplementedError, match=name):
        getattr(TorchGroup, name)(object())
