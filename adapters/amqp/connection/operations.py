"""Methods that must await the kernel: one at a time, in order, and fenced where it matters.

    begin --(nothing in the way)--> the host runs `perform` --> answer, or error --> reader resumes

A fenced operation (`lifecycle.Step.fenced`) starts only when everything that the connection has
published and given back before is done. While one waits or runs, the reader holds what comes in,
so an answer never overtakes another.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from adapters.amqp.errors import AmqpError, from_kernel
from kernel.common.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from adapters.amqp.codec.method_base import Method
    from adapters.amqp.environment import AmqpHost


class Operation(NamedTuple):
    """A method that awaits the kernel."""

    number: int
    """Its channel."""
    method: type[Method]
    work: Callable[[], Coroutine[object, object, Method | None]]
    """Made only when it is awaited: a connection may be lost before."""
    is_fenced: bool
    is_answered: bool
    """False for nowait: the answer is dropped, an error is not."""


class OperationOutcome(Protocol):
    """Who hears how an operation ended: the connection."""

    def send(self, number: int, method: Method) -> None:
        """Append a method to the output."""

    def fail(self, number: int, error: AmqpError) -> None:
        """Close the channel or the connection."""

    def has_work_under_way(self) -> bool:
        """Whether a fenced operation must wait."""


class Operations:
    """The operation of one connection that waits or runs, if there is one."""

    __slots__ = ("_host", "_outcome", "_waiting", "is_running")

    def __init__(self, host: AmqpHost, outcome: OperationOutcome) -> None:
        self._host = host
        self._outcome = outcome
        self._waiting: Operation | None = None
        self.is_running = False
        """Whether one has been started and not ended."""

    @property
    def is_waiting(self) -> bool:
        """Whether one waits to be started."""
        return self._waiting is not None

    def begin(self, operation: Operation) -> None:
        """Have an operation run; the reader must have been stopped. `try_start` starts it."""
        assert self._waiting is None
        assert not self.is_running
        self._waiting = operation

    def try_start(self) -> None:
        """Start the one that waits, unless something is in its way."""
        operation = self._waiting
        if operation is None:
            return
        if operation.is_fenced and self._outcome.has_work_under_way():
            return
        self._waiting = None
        self.is_running = True
        self._host.run(partial(self._perform, operation))

    def cancel(self) -> None:
        """The connection is ending: the one that waits is never started."""
        self._waiting = None

    async def _perform(self, operation: Operation) -> None:
        """Await an operation and tell its outcome. Raises nothing, but for a bug."""
        try:
            answer = await operation.work()
        except AmqpError as error:
            self._fail(operation, error)
        except KernelError as error:
            self._fail(operation, from_kernel(error))
        else:
            if answer is not None and operation.is_answered:
                self._outcome.send(operation.number, answer)
        finally:
            self.is_running = False
            self._host.write_soon()

    def _fail(self, operation: Operation, error: AmqpError) -> None:
        error.blame(operation.method.class_id, operation.method.method_id)
        self._outcome.fail(operation.number, error)
