"""Send and receive as methods of the process group; mailbox.py does the work."""

from typing import Any

from torch.autograd import profiler
from torch.distributed import Work

from ..wire.lines import LineMessage
from ..wire.mailbox import P2PWork
from . import overloads
from .arguments import check_targets, check_tensors, only_tensor, peer_of, tag_of
from .base import GroupBase
from .dispatch_modes import called_as
from .profiler_ranges import mark_until_done
from .signature import dtype_number
from .tensors import Outputs, dense, size_bytes


class MessagesGroup(GroupBase):
    """A group with messages between two of its ranks."""

    _sends_and_receives = 0

    @called_as(overloads.SEND)
    def send(self, tensors: Any, dst: Any, tag: Any, _: Any) -> Work:
        """Send a tensor to one rank."""
        source, tag = only_tensor(tensors, "send"), tag_of(tag, "send")
        peer = peer_of(dst, self._rank, self._size, "send")
        check_tensors([source], "send")
        source = dense(source)
        message = LineMessage(tag, source.data_ptr(), size_bytes(source), dtype_number(source.dtype))
        mailbox = self._engine.mailbox
        work = P2PWork(mailbox, f"send to rank {peer}", self._next_number(), peer, message, [source])
        work.engine = self._engine
        if profiler._is_profiler_enabled:
            mark_until_done("send", work)
        mailbox.send(work)
        return work

    @called_as(overloads.RECV)
    def recv(self, tensors: Any, src: Any, tag: Any, _: Any) -> Work:
        """Receive a tensor from one rank."""
        return self._receive(tensors, peer_of(src, self._rank, self._size, "recv"), tag)

    @called_as(overloads.RECV_ANY)
    def recv_anysource(self, tensors: Any, tag: Any, _: Any) -> Work:
        """Receive a tensor from the first rank that sends one."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Any, src: int | None, tag: Any) -> Work:
        tensor, tag = only_tensor(tensors, "recv"), tag_of(tag, "recv")
        check_tensors([tensor], "recv")
        check_targets([tensor], "recv")
        landing = Outputs([tensor])
        name = f"recv from rank {src}" if src is not None else "recv from any rank"
        message = LineMessage(tag, landing.addresses[0], size_bytes(tensor), dtype_number(tensor.dtype))
        mailbox = self._engine.mailbox
        work = P2PWork(mailbox, name, self._next_number(), src, message, [tensor], landing.land)
        work.engine = self._engine
        if profiler._is_profiler_enabled:
            mark_until_done("recv", work)
        mailbox.receive(work)
        return work

    def _next_number(self) -> int:
        self._sends_and_receives += 1
        return self._sends_and_receives
