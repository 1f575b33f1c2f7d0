from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract.cell_protocol import (
    CellDescriptors,
    CellLimits,
    CellRequest,
    receive_request,
    send_prepare,
    send_request,
)
from lambda_kernel.contract.invocation import CellMessage
from lambda_kernel.contract.outcome import LostName
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.snapshot_report import NewObject, PatchedObject, SnapshotReport
from lambda_kernel.contract.zygote_answers import (
    Exited,
    Forked,
    Prepared,
    Ready,
    Refused,
    ZygoteAnswer,
    decode_answer,
    encode_answer,
)

TEXT = st.text(st.characters(exclude_categories=[]))
ANSWERS = st.one_of(
    st.builds(Ready, pid=st.integers(1), preloaded=st.lists(st.text()).map(tuple)),
    st.builds(Forked, forked=st.integers(1)),
    st.builds(Prepared, prepared=st.integers(1)),
    st.builds(Refused, refused=st.text()),
    st.builds(Exited, exited=st.integers(1), status=st.integers(0, 65535)),
)


def request(code: str = "1") -> CellRequest:
    message = CellMessage(header={"msg_id": "m"}, content={"code": code})
    return CellRequest(msg=message, execution_count=1, workdir="/w", home="/h")


def descriptors() -> CellDescriptors:
    numbers = [os.memfd_create(f"test-{i}") for i in range(6)]
    return CellDescriptors(
        frames=numbers[0],
        stdout=numbers[1],
        stderr=numbers[2],
        snapshot_in=numbers[3],
        snapshot_out=numbers[4],
        pager=numbers[5],
    )


@given(TEXT)
def test_a_request_arrives_as_it_was_with_its_descriptors_in_order(code: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sent_descriptors = descriptors()
    with ours, theirs:
        send_request(ours, request(code), sent_descriptors)
        pending = receive_request(theirs) or pytest.fail("no request")

    assert pending.read() == request(code)
    got_descriptors = pending.descriptors.as_list()
    for sent, got in zip(sent_descriptors.as_list(), got_descriptors, strict=True):
        assert os.path.sameopenfile(sent, got)
    sent_descriptors.close()
    pending.descriptors.close()


def test_a_request_is_handed_on_unread_and_read_once() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sent_descriptors = descriptors()
    with ours, theirs:
        send_request(ours, request("1"), sent_descriptors)
        first = receive_request(theirs) or pytest.fail("no request")
        first.forward(ours)
        second = receive_request(theirs) or pytest.fail("no request")
        first.close()

    assert second.read() == request("1")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second.memfd)
    sent_descriptors.close()
    second.descriptors.close()


def test_a_request_that_is_none_is_refused_by_who_reads_it() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memfd = os.memfd_create("x")
    os.write(memfd, b'{"kind": "execute"}')
    sent_descriptors = descriptors()
    with ours, theirs:
        socket.send_fds(ours, [b'{"request":1}'], [memfd, *sent_descriptors.as_list()])
        pending = receive_request(theirs) or pytest.fail("no request")

    with pytest.raises(InvalidField, match="cell_request"):
        pending.read()
    os.close(memfd)
    sent_descriptors.close()
    pending.descriptors.close()


def test_a_request_far_larger_than_a_datagram_arrives() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sent_descriptors = descriptors()
    with ours, theirs:
        send_request(ours, request("\u00e9" * 10_000_000), sent_descriptors)
        pending = receive_request(theirs) or pytest.fail("no request")

    assert len(pending.read().msg.content["code"]) == 10_000_000
    sent_descriptors.close()
    pending.descriptors.close()


def test_a_datagram_without_descriptors_is_refused() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.send(b'{"request":1}')
        with pytest.raises(InvalidField, match="7 descriptors"):
            receive_request(theirs)


def test_the_end_of_the_serving_process_is_eof() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs, pytest.raises(EOFError):
        receive_request(theirs)


@given(ANSWERS)
def test_answers_decode_to_what_was_encoded(answer: ZygoteAnswer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


@pytest.mark.parametrize("datagram", [b"", b"x", b"[]", b"{}", b'{"forked": "1"}'])
def test_what_is_no_answer_is_refused(datagram: bytes) -> None:
    with pytest.raises(InvalidField):
        decode_answer(datagram)


def test_a_report_decodes_from_its_frame() -> None:
    lost = (LostName(name="g", type="generator", why="w", hint="h"),)
    report = SnapshotReport(
        size_bytes=1,
        index=9,
        keep=(3, 4),
        new=(NewObject(id=9, offset=0, size_bytes=1),),
        patched=(PatchedObject(id=10, base=4, chunks=((0, 4096), (2, 8192))),),
        lost=lost,
    )

    assert SnapshotReport.from_dict(report.to_dict()) == report


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workdir", "relative"),
        ("home", "/a\0b"),
        ("execution_count", -1),
        ("environment", {"A=B": "1"}),
        ("environment", {"A": "\0"}),
        ("surprise", 1),
    ],
)
def test_a_malformed_request_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(InvalidField, match=f"cell_request.{field}"):
        CellRequest.from_dict({**request().to_dict(), field: value})


def test_limits_must_be_positive() -> None:
    with pytest.raises(InvalidField, match="processes"):
        CellLimits(processes=0)


def test_a_wish_for_a_prepared_child_is_no_request() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        send_prepare(ours)

        assert receive_request(theirs) is None
