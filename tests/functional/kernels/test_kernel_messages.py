"""What a client sees of a cell, in which order, and how the queue behaves."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.messaging.message import OutMessage
from lambda_kernel.contract.invocation import INLINE_REQUEST_BYTES

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import World


def said(messages: list[OutMessage]) -> list[str]:
    """Return the types of messages; of a status, its state."""
    return [m.content.get("execution_state", m.msg_type) for m in messages]


def reply_of(messages: list[OutMessage]) -> OutMessage:
    (reply,) = [m for m in messages if m.msg_type == "execute_reply"]
    return reply


async def test_the_messages_of_a_cell_come_in_the_order_that_clients_rely_on(world: World) -> None:
    client = await world.client()

    messages = await client.run("print hello")

    assert said(messages) == ["busy", "execute_input", "stream", "execute_reply", "idle"]
    assert messages[1].content == {"code": "print hello", "execution_count": 1}
    assert messages[2].content == {"name": "stdout", "text": "hello\n"}
    assert [m.channel for m in messages] == ["iopub", "iopub", "iopub", "shell", "iopub"]
    assert reply_of(messages).content["status"] == "ok"


async def test_an_error_message_precedes_the_error_reply(world: World) -> None:
    client = await world.client()

    messages = await client.run("raise ValueError")

    assert said(messages) == ["busy", "execute_input", "error", "execute_reply", "idle"]
    assert reply_of(messages).content["ename"] == "ValueError"
    assert (await client.run("print on"))[1].content["execution_count"] == 2


async def test_the_reply_says_which_container_and_invocation_ran_the_cell(world: World) -> None:
    client = await world.client()

    messages = await client.run("print x")

    facts = reply_of(messages).metadata["lambda_kernel"]
    assert facts["container_id"] == "c1"
    assert facts["aws_request_id"] == "r1"
    assert facts["committed"] is True
    assert facts["seq"] == 1
    assert facts["aws_sequential"] == 3
    assert facts["request_id"] == messages[1].metadata["lambda_kernel"]["request_id"]
    ours, containers = ("receive admit plan invoke publish", "narrow rehydrate run persist")
    assert {*ours.split(), *containers.split()} == set(facts["timings_ms"])


async def test_each_cell_starts_from_the_commit_of_the_one_before(world: World) -> None:
    client = await world.client()

    for code in ("print a", "raise E", "print b"):
        await client.run(code)

    first, second, third = world.function.invocations
    assert first.parent_head is None
    assert [i.seq for i in (first, second, third)] == [1, 2, 3]
    assert second.parent_head is not None
    assert second.parent_head.seq == 1
    assert third.manifest_bytes() is not None
    assert third.workdir_name == first.workdir_name


async def test_the_commit_is_fetched_ahead_where_the_response_does_not_carry_it(
    world: World,
) -> None:
    world.function.inlines_commit = False
    client = await world.client()

    await client.run("print a")
    await client.run("print b")

    assert world.function.invocations[1].manifest is not None


async def test_requests_wait_in_line_and_run_one_at_a_time(world: World) -> None:
    client = await world.client()

    sent = [client.execute(f"print {n}") for n in range(5)]
    for msg_id in sent:
        await client.done(msg_id)

    assert world.function.ran == [f"print {n}" for n in range(5)]
    assert world.invoker.most_running == 1
    assert [m.content["execution_count"] for m in client.messages if m.msg_type == "execute_input"]


async def test_an_error_aborts_the_requests_behind_it(world: World) -> None:
    client = await world.client()

    failing = client.execute("raise E")
    waiting = [client.execute("print 1"), client.execute("print 2")]
    await client.done(failing)
    aborted = [await client.done(msg_id) for msg_id in waiting]

    assert [said(each) for each in aborted] == [["busy", "execute_reply", "idle"]] * 2
    assert all(reply_of(each).content == {"status": "aborted"} for each in aborted)
    assert world.function.ran == ["raise E"]
    assert client.kernel.execution_count == 1


async def test_stop_on_error_false_lets_the_queue_go_on(world: World) -> None:
    client = await world.client()

    client.execute("raise E", stop_on_error=False)
    messages = await client.done(client.execute("print 1"))

    assert reply_of(messages).content["status"] == "ok"


async def test_a_queue_that_is_too_long_is_refused_and_answered(world: World) -> None:
    client = await world.client()
    client.execute("wait")
    await world.function.began.wait()

    sent = [client.execute("print x") for _ in range(6)]

    refused = await client.done(sent[-1])
    assert reply_of(refused).content["ename"] == "QueueFull"


async def test_a_silent_cell_takes_no_number_and_shows_nothing(world: World) -> None:
    client = await world.client()

    messages = await client.run("never-starts", silent=True)

    assert said(messages) == ["busy", "execute_reply", "idle"]
    assert client.kernel.execution_count == 0


async def test_a_cell_outside_history_shows_the_next_number_and_leaves_it(world: World) -> None:
    client = await world.client()

    messages = await client.run("print x", store_history=False)

    assert messages[1].content["execution_count"] == 1
    assert client.kernel.execution_count == 0
    assert (await client.ask("history_request", hist_access_type="tail", n=3))["history"] == []


async def test_an_empty_cell_is_answered_without_an_invocation(world: World) -> None:
    client = await world.client()

    messages = await client.run(" \n")

    assert reply_of(messages).content["status"] == "ok"
    assert world.function.invocations == []


async def test_messages_of_other_types_are_not_taken_from_a_container(world: World) -> None:
    client = await world.client()

    messages = await client.run("status-message")

    assert said(messages) == ["busy", "execute_input", "execute_reply", "idle"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "content.code is missing"),
        ({"code": None}, "content.code is missing"),
        ({"code": 7}, "content.code must be text, not a whole number"),
        ({"code": ["x"]}, "content.code must be text, not an array"),
        ({"silent": 1}, "content.silent must be true or false"),
        ({"store_history": "no"}, "content.store_history must be true or false, not text"),
        ({"allow_stdin": []}, "content.allow_stdin"),
        ({"stop_on_error": {}}, "content.stop_on_error"),
        ({"user_expressions": ["1"]}, "content.user_expressions must be an object"),
        ({"user_expressions": {"a": 1}}, "content.user_expressions['a'] must be text"),
    ],
)
async def test_an_execute_request_of_a_wrong_shape_is_no_cell(
    world: World, content: dict[str, Any], said: str
) -> None:
    client = await world.client()
    default = {"code": "print x"} if content and "code" not in content else {}

    messages = await client.done(client.send("execute_request", **default, **content))

    reply = reply_of(messages)
    assert (reply.content["status"], reply.content["ename"]) == ("error", "BadMessage")
    assert said in reply.content["evalue"]
    facts = {"failure": "BadMessage", "code_started": "no"}
    assert reply.metadata["lambda_kernel"] == facts
    assert world.function.invocations == []
    assert (await client.run("print on"))[1].content["execution_count"] == 1


async def test_null_stands_for_a_field_that_is_missing(world: World) -> None:
    client = await world.client()

    messages = await client.run("print x", silent=None, store_history=None, user_expressions=None)

    assert reply_of(messages).content["execution_count"] == 1


@pytest.mark.parametrize(
    ("msg_type", "content", "said"),
    [
        ("complete_request", {"code": 1}, "content.code"),
        ("complete_request", {"code": "x", "cursor_pos": "1"}, "content.cursor_pos"),
        ("inspect_request", {"code": "x", "detail_level": True}, "content.detail_level"),
        ("is_complete_request", {"code": []}, "content.code"),
        ("history_request", {"hist_access_type": 1}, "content.hist_access_type"),
        ("history_request", {"hist_access_type": "tail", "n": "3"}, "content.n"),
        ("comm_info_request", {"target_name": 1}, "content.target_name"),
    ],
)
async def test_a_request_of_a_wrong_shape_is_answered_with_its_field(
    world: World, msg_type: str, content: dict[str, Any], said: str
) -> None:
    client = await world.client()

    answer = await client.ask(msg_type, **content)

    assert (answer["status"], answer["ename"]) == ("error", "BadMessage")
    assert said in answer["evalue"]


async def test_a_shutdown_request_of_a_wrong_shape_shuts_nothing_down(world: World) -> None:
    client = await world.client()

    answer = await client.ask("shutdown_request", channel="control", restart="no")

    assert answer["ename"] == "BadMessage"
    assert reply_of(await client.run("print on")).content["status"] == "ok"


async def test_only_the_gateway_says_what_failed_and_which_number_a_cell_has(
    world: World,
) -> None:
    client = await world.client()

    lies = await client.run("lies")
    raised = await client.run("raise CellTimeout")
    failed = await client.run("times-out-politely")

    assert [m.content["execution_count"] for m in lies if m.msg_type == "execute_result"] == [1]
    assert reply_of(lies).content["execution_count"] == 1
    assert reply_of(lies).metadata["status"] == "ok"
    assert [m.metadata for m in lies if m.msg_type == "execute_result"] == [{}]
    assert reply_of(raised).content["ename"] == reply_of(failed).content["ename"] == "CellTimeout"
    told = [reply_of(m).metadata["lambda_kernel"]["failure"] for m in (lies, raised, failed)]
    assert told == [None, None, "CellTimeout"]


async def test_code_that_cannot_be_sent_is_refused_in_words(world: World) -> None:
    client = await world.client()

    messages = await client.run("a\ud800b")

    content = reply_of(messages).content
    assert content["ename"] == "InvalidCode"
    assert "Started: no" in content["evalue"]
    assert "as at the start of the session" in content["evalue"]
    assert world.function.invocations == []


async def test_nul_in_code_is_left_to_python(world: World) -> None:
    client = await world.client()

    await client.run("print a\x00b")

    assert world.function.ran == ["print a\x00b"]


async def test_a_large_request_goes_through_the_overflow_bucket_and_leaves_nothing(
    world: World,
) -> None:
    client = await world.client()

    messages = await client.run("print " + "x" * INLINE_REQUEST_BYTES)

    assert reply_of(messages).content["status"] == "ok"
    assert "pointer" in json.loads(world.invoker.payloads[0])
    assert [key for _, key in world.store.objects if key.startswith("requests/")] == []


async def test_a_large_request_that_cannot_be_stored_is_refused(world: World) -> None:
    client = await world.client()
    world.store.failing_puts.add("lkg-overflow")

    messages = await client.run("print " + "x" * INLINE_REQUEST_BYTES)

    content = reply_of(messages).content
    assert content["ename"] == "StorageUnavailable"
    assert "Started: no" in content["evalue"]


async def test_a_request_over_the_hard_limit_is_refused(world: World) -> None:
    client = await world.client()

    messages = await client.run("print " + "x" * 65 * 1024 * 1024)

    assert reply_of(messages).content["ename"] == "PayloadTooLarge"
    assert world.function.invocations == []


async def test_a_request_that_is_answered_at_once_leaves_a_running_cell_busy(world: World) -> None:
    client = await world.client()
    cell = client.execute("wait")
    await world.function.began.wait()

    info = await client.ask("kernel_info_request")

    assert info["implementation"] == "lambda-kernel-gateway"
    assert client.messages[-1].content == {"execution_state": "busy"}
    assert client.messages[-1].parent_header["msg_id"] == cell


async def test_history_is_that_of_this_kernel(world: World) -> None:
    client, other = await world.client(), await world.client()
    for code in ("print a", "print b", "print c"):
        await client.run(code)
    await other.run("print z")

    tail = await client.ask("history_request", hist_access_type="tail", n=2)
    ranged = await client.ask("history_request", hist_access_type="range", start=1, stop=2)
    found = await client.ask("history_request", hist_access_type="search", pattern="*b", n=9)

    assert tail["history"] == [(1, 2, "print b"), (1, 3, "print c")]
    assert ranged["history"] == [(0, 1, "print a")]
    assert found["history"] == [(1, 2, "print b")]


@pytest.mark.parametrize(
    "data",
    [None, [], "x", {}, {"header": None}, {"header": {"msg_id": "1"}}, {"header": {"msg_id": 1}},
     {"header": {"msg_type": "execute_request"}}, {"header": [], "content": {}},
     {"header": {"msg_id": "1", "msg_type": "x"}, "channel": "iopub"},
     {"header": {"msg_id": "1", "msg_type": "x"}, "channel": ["shell"]},
     {"header": {"msg_id": "1", "msg_type": "x"}, "content": "text"}],
)  # fmt: skip
async def test_what_is_not_a_message_is_answered_and_hurts_nobody(world: World, data: Any) -> None:
    client = await world.client()

    client.kernel.receive_raw(data, client.take)

    assert client.messages[-1].msg_type == "error"
    assert client.messages[-1].content["ename"] == "BadMessage"
    assert reply_of(await client.run("print ok")).content["status"] == "ok"


async def test_messages_without_channel_date_and_session_work(world: World) -> None:
    client = await world.client()

    client.kernel.receive_raw(
        {"header": {"msg_id": "m1", "msg_type": "execute_request"}, "content": {"code": "print x"}},
        client.take,
    )

    assert said(await client.done("m1"))[-2:] == ["execute_reply", "idle"]


async def test_an_unknown_request_gets_an_error_reply(world: World) -> None:
    client = await world.client()

    assert (await client.ask("frobnicate_request"))["status"] == "error"
    assert (await client.ask("debug_request", channel="control"))["status"] == "error"


async def test_other_unknown_messages_are_ignored(world: World) -> None:
    client = await world.client()

    client.send("frobnicate")
    client.send("input_reply", channel="stdin", value="x")

    assert client.messages == []


async def test_a_comm_for_which_nothing_is_registered_is_closed(world: World) -> None:
    client = await world.client()

    messages = await client.done(client.send("comm_open", comm_id="c", target_name="t", data={}))

    assert said(messages) == ["busy", "comm_close", "idle"]
    messages = await client.done(client.send("comm_msg", comm_id="c"))
    assert said(messages) == ["busy", "stream", "comm_close", "idle"]
    assert "this widget is inert" in messages[1].content["text"]
    assert said(await client.done(client.send("comm_close", comm_id="c"))) == ["busy", "idle"]
    assert world.function.invocations == []


async def test_output_goes_to_every_client_and_the_reply_to_the_one_that_asked(
    world: World,
) -> None:
    client = await world.client()
    other = world.attached(client.kernel)

    msg_id = client.execute("print x")
    await client.done(msg_id)

    assert said(other.about(msg_id)) == ["busy", "execute_input", "stream", "idle"]
    assert client.kernel.connections == 2


async def test_a_client_that_fails_does_not_hurt_the_others(world: World) -> None:
    client = await world.client()

    def broken(message: OutMessage) -> None:
        raise RuntimeError("gone")

    client.kernel.attach(broken)

    assert reply_of(await client.run("print x")).content["status"] == "ok"


async def test_an_idle_kernel_has_no_task(world: World) -> None:
    client = await world.client()
    await client.run("print x")
    await world.quiet()

    assert client.kernel.execution_state == "idle"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_reply_function_that_fails_is_answered_and_hurts_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("kernel_gateway.kernels.kernel.reply_content", fail)
    client = await world.client()

    reply = await client.ask("is_complete_request", code="1")

    assert (reply["status"], reply["ename"]) == ("error", "RequestFailed")
    assert said(await client.run("print on"))[-1] == "idle"
