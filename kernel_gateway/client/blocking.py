"""The client for programs without asyncio."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar, Unpack

import httpx

from kernel_gateway.client import operations
from kernel_gateway.client.connecting import http_options, request_options, running_gateway
from kernel_gateway.client.endpoint import (
    ApiError,
    Endpoint,
    OutcomeUnknown,
    TryLater,
    Unreachable,
)
from kernel_gateway.client.models import (
    Event,
    EventReader,
    FileInfo,
    KernelInfo,
    Result,
    VariableInfo,
)
from kernel_gateway.client.operations import ExecuteOptions, Pause, Send, Steps

T = TypeVar("T")


class Gateway:
    """One gateway, as one caller sees it. Close it, or use it in ``with``.

    Attributes:
        endpoint: where it is, and who asks.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.endpoint = Endpoint(url=url, token=token)
        self._http = httpx.Client(**http_options(self.endpoint))

    @classmethod
    def local(cls, state_dir: str | Path | None = None, *, token: str | None = None) -> Self:
        """Return the gateway that runs on this machine.

        Args:
            state_dir: its ``--state-dir``, None for the default one.
            token: the caller's, None for that of the user ``local``.

        Raises:
            NotRunning: none runs there.
        """
        found = running_gateway(state_dir)
        return cls(found.url, token or found.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back; kernels go on."""
        self._http.close()

    def kernels(self) -> list[KernelInfo]:
        """Return the kernels that the caller may see (raises ApiError)."""
        return self.run(operations.kernels())

    def start_kernel(
        self,
        name: str | None = None,
        *,
        workspace: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Kernel:
        """Start a kernel, which goes on until it is shut down (raises ApiError).

        Args:
            name: a kernelspec, None for the default.
            workspace: which workspace its cells work in, None for ``default``.
            env: LAMBDA_KERNEL_… choices.
        """
        return Kernel(self, self.run(operations.start_kernel(name, workspace, env)))

    def attach(self, kernel_id: str) -> Kernel:
        """Return a kernel that is there already.

        Raises:
            NoSuchThing: it does not exist, or is not the caller's.
        """
        return Kernel(self, self.run(operations.kernel(kernel_id)))

    @contextmanager
    def kernel(
        self,
        name: str | None = None,
        *,
        workspace: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Kernel]:
        """Yield a kernel as `start_kernel` does, and shut it down at the end."""
        kernel = self.start_kernel(name, workspace=workspace, env=env)
        try:
            yield kernel
        finally:
            # What came of the cells counts for more.
            with suppress(ApiError):
                kernel.shutdown()

    def run(self, steps: Steps[T]) -> T:
        """Do what ``steps`` ask for and return their result (raises ApiError)."""
        answer: httpx.Response | None = None
        problem: Unreachable | None = None
        while True:
            try:
                with operations.understood(self.endpoint.url):
                    step = steps.send(answer) if problem is None else steps.throw(problem)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = problem = None
            try:
                answer = self._take(step)
            except Unreachable as found:
                problem = found

    def events(self, send: Send) -> Generator[Event, None, None]:
        """Yield the events of an execution; a lost connection is made anew where it broke."""
        reader = EventReader()
        retrying = operations.Retrying(was_sent=not send.has_new_key)
        while True:
            try:
                for event in self._events_once(send, reader):
                    retrying.succeeded()
                    yield event
                    if event.is_last:
                        return
            except Unreachable as problem:
                self.run(retrying.after(problem))
            except (TryLater, OutcomeUnknown) as problem:
                self.run(retrying.after_refusal(problem))

    def _events_once(self, send: Send, reader: EventReader) -> Generator[Event, None, None]:
        reader.begin()
        request = request_options(operations.events_request(send, reader.last_number))
        try:
            with self._http.stream(**request) as response:
                if response.status_code >= 400:
                    response.read()
                    operations.check(response)
                operations.check_stream(response)
                for line in response.iter_lines():
                    with operations.understood(self.endpoint.url):
                        event = reader.feed(line)
                    if event is not None:
                        yield event
                # Whoever got the last event asks for no more.
                raise Unreachable("the events ended before the cell did", was_sent=True)
        except httpx.RequestError as problem:
            raise operations.trouble_of(problem, self.endpoint.url) from problem

    def _take(self, step: Send | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(**request_options(step))
        except httpx.RequestError as problem:
            raise operations.trouble_of(problem, self.endpoint.url) from problem


class Kernel:
    """One kernel of a gateway.

    Attributes:
        info: as it was when it was started or attached.
    """

    def __init__(self, gateway: Gateway, info: KernelInfo) -> None:
        self.info = info
        self._gateway = gateway

    @property
    def kernel_id(self) -> str:
        """Its id."""
        return self.info.kernel_id

    @property
    def workspace(self) -> str:
        """The workspace that its cells work in."""
        return self.info.workspace

    def execute(
        self, code: str, *, idempotency_key: str | None = None, **options: Unpack[ExecuteOptions]
    ) -> Result:
        """Run one cell and return how it ended, an error in it included.

        A request whose connection is lost is sent again: the gateway attaches it to the cell that
        runs, or answers with the result, so the cell runs once.

        Args:
            code: of the cell.
            idempotency_key: of this cell, a random one where None. Given again with the same
                arguments, also by another process, it returns the same result.
            options: see `ExecuteOptions`.

        Raises:
            TryLater: nothing ran: the queue is full, or no container is free.
            OutcomeUnknown: whether it ran cannot be told yet; ask again with the same key.
            ResultGone: the cell of this key ran, and its result is not kept any more.
            Unreachable: it does not answer any more.
            ApiError: it refused; see its subclasses.
        """
        body = operations.execute_body(code, options)
        return self._gateway.run(
            operations.execute(operations.execute_request(self.kernel_id, body, idempotency_key))
        )

    def stream(
        self, code: str, *, idempotency_key: str | None = None, **options: Unpack[ExecuteOptions]
    ) -> Generator[Event, None, None]:
        """Run one cell and yield its messages as they come, the ``execute_reply`` last.

        A lost connection is made anew where it broke. The cell goes on where the caller stops
        reading, unless ``interrupt_on_disconnect`` is given. Arguments and errors: see `execute`.
        """
        body = operations.execute_body(code, options)
        return self._gateway.events(
            operations.execute_request(self.kernel_id, body, idempotency_key)
        )

    def interrupt(self) -> None:
        """Interrupt the running cell, whoever asked for it (raises ApiError)."""
        self._gateway.run(operations.act(self.kernel_id, "interrupt"))

    def restart(self) -> None:
        """Empty the namespace and abort what waits; the id stays (raises ApiError)."""
        self._gateway.run(operations.act(self.kernel_id, "restart"))

    def shutdown(self) -> None:
        """End the kernel (raises ApiError)."""
        self._gateway.run(operations.shutdown(self.kernel_id))

    def variables(self) -> list[VariableInfo]:
        """Return what the session holds, by name, without values (raises ApiError)."""
        return self._gateway.run(operations.variables(self.kernel_id))

    def files(self, folder: str = "", *, recursive: bool = True) -> list[FileInfo]:
        """Return what is in a folder of the workspace, "" for all of it (raises ApiError)."""
        return self._gateway.run(operations.files(self.workspace, folder, recursive=recursive))

    def upload(self, path: str, content: bytes) -> None:
        """Store ``content`` as a file of the workspace: the next cell sees it (raises ApiError)."""
        self._gateway.run(operations.upload(self.workspace, path, content))

    def download(self, path: str) -> bytes:
        """Return the content of a file of the workspace (raises ApiError)."""
        return self._gateway.run(operations.download(self.workspace, path))


def execute(code: str, *, url: str, token: str) -> Result:
    """Run ``code`` in a kernel of its own and return how it ended (raises ApiError)."""
    with Gateway(url, token) as gateway, gateway.kernel() as kernel:
        return kernel.execute(code)
