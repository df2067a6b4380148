"""iceoryx2: publish and subscribe through loaned memory, set so that nothing is dropped."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

from bench.large import FAN_OUT_PLACES, FAN_OUT_STEP, LargeWay
from bench.way import Receive, Send, Way, idle


class _Iceoryx(Way):
    needs = "iceoryx2"

    node: Any = None
    port: Any = None
    #: How many subscribers each sample goes to.
    subscribers: ClassVar[int] = 1

    def service(self) -> Any:
        """The service, opened in this process."""
        import iceoryx2

        self.api = iceoryx2
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        config = iceoryx2.config.default()
        config.global_cfg.root_path = iceoryx2.Path.new(str(self._folder()))
        config.global_cfg.prefix = iceoryx2.FileName.new(self._prefix())
        builder = iceoryx2.NodeBuilder.new().config(config)
        self.node = builder.create(iceoryx2.ServiceType.Ipc)
        return (
            self.node.service_builder(iceoryx2.ServiceName.new(self.name))
            .publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(self.places)
            .open_or_create()
        )

    def _folder(self) -> Path:
        return Path(tempfile.gettempdir(), f"{self.name}.iceoryx2")

    def _prefix(self) -> str:
        return f"{self.name}_"

    def finish(self) -> None:
        self.port = self.node = None

    def remove(self) -> None:
        shutil.rmtree(self._folder(), ignore_errors=True)
        for left in Path("/dev/shm").glob(f"{self._prefix()}*"):
            left.unlink(missing_ok=True)

    def publisher(self) -> Any:
        """The publisher, which waits for a slow subscriber."""
        self.port = (
            self.service()
            .publisher_builder()
            .initial_max_slice_len(self.size)
            .backpressure_strategy(self.api.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        return self.port

    def subscriber(self) -> Any:
        """The subscriber."""
        self.port = self.service().subscriber_builder().create()
        return self.port

    def opened(self) -> None:
        """Connect the ports.

        A subscriber discovers a publisher when it asks for a sample. Until then the publisher
        fills its buffer once and drops everything after that.
        """
        if hasattr(self.port, "update_connections"):
            self.port.update_connections()
        elif self.port.receive() is not None:
            raise AssertionError("a sample was there before any was sent")


class OneByOne(_Iceoryx):
    """Each body is copied into a loan and out of a sample."""

    label = "iceoryx2, copied"
    note = "no acknowledgement; the receiver only spins"

    def sender(self, bodies: list[bytes]) -> Send:
        loan, move, size = self.publisher().loan_slice_uninit, ctypes.memmove, self.size

        def send() -> None:
            for body in bodies:
                sample = loan(size)
                move(sample.payload_ptr, body, size)
                if sample.assume_init().send() != 1:
                    raise AssertionError("the subscriber did not get it")

        return send

    def receiver(self, count: int) -> Receive:
        get, copy, size = self.subscriber().receive, ctypes.string_at, self.size

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                while (sample := get()) is None:
                    idle()
                received.append(copy(sample.payload_ptr, size))
            return received

        return receive


class Loaned(_Iceoryx, LargeWay):
    """Each body is written in a loan and read in the sample."""

    label = "iceoryx2, zero-copy"
    note = "written in place, read in place; the receiver only spins"

    #: What a subscriber does between two polls.
    rest = staticmethod(idle)

    def sender(self, bodies: list[bytes]) -> Send:
        loan, move, size = self.publisher().loan_slice_uninit, ctypes.memmove, self.size
        subscribers = self.subscribers

        def send() -> None:
            for body in bodies:
                sample = loan(size)
                move(sample.payload_ptr, body, size)
                if sample.assume_init().send() != subscribers:
                    raise AssertionError("a subscriber did not get it")

        return send

    def receiver(self, count: int) -> Receive:
        get, seen, rest = self.subscriber().receive, self.seen, self.rest
        buffer = ctypes.c_uint8 * self.size

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                while (sample := get()) is None:
                    rest()
                received.append(seen(buffer.from_address(sample.payload_ptr)))
            return received

        return receive


class FanOut(Loaned):
    """The same to eight subscribers, which yield the core while no sample is there."""

    label = "iceoryx2, zero-copy, 8 subscribers"
    note = "waits for the slowest, so that nothing is lost; who waits asks again, and yields"
    subscribers = 8
    step = FAN_OUT_STEP
    rest = staticmethod(os.sched_yield)

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.places = FAN_OUT_PLACES
