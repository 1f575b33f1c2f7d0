"""The pipe a response flows through."""

from __future__ import annotations

import asyncio

from kernel_gateway.local.invokes import PIPE_BYTES, FunctionError, ResponsePipe


async def test_what_was_put_comes_out_and_then_the_end() -> None:
    pipe = ResponsePipe()
    await pipe.put(b"a")
    await pipe.put(b"b")
    pipe.end()

    assert b"".join([chunk async for chunk in pipe.chunks()]) == b"ab"
    assert pipe.error is None


async def test_a_writer_waits_for_a_reader_that_is_behind() -> None:
    pipe = ResponsePipe()
    writing = asyncio.create_task(pipe.put(b"x" * PIPE_BYTES))
    await asyncio.sleep(0)
    assert not writing.done()

    async for chunk in pipe.chunks():
        assert len(chunk) == PIPE_BYTES
        break
    await writing


async def test_a_reader_that_left_holds_nobody_up() -> None:
    pipe = ResponsePipe()
    writing = asyncio.create_task(pipe.put(b"x" * PIPE_BYTES))
    await asyncio.sleep(0)

    pipe.detach()

    await writing
    await pipe.put(b"x" * 2 * PIPE_BYTES)


async def test_only_the_first_end_counts() -> None:
    pipe = ResponsePipe()
    pipe.end(FunctionError.create("First", ""))
    pipe.end(FunctionError.create("Second", ""))

    assert pipe.error is not None
    assert pipe.error.type == "First"
