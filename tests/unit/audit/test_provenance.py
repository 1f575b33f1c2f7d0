"""Statements about cells, read by the published definitions of in-toto and SLSA."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage
from securesystemslib import dsse

from kernel_gateway.audit import chain, envelopes
from kernel_gateway.audit.chain import CellFinished, CellStarted, Event, KernelRestarted, Outputs
from kernel_gateway.audit.facts import (
    Credentials,
    EndFacts,
    HandlerFacts,
    Inputs,
    Owner,
    RunsIn,
    Session,
    StartFacts,
    Workspace,
)
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.provenance import PAYLOAD_TYPE, PREDICATE_TYPE
from kernel_gateway.audit.signing import BadSignature, check_signature
from kernel_gateway.audit.trail import statements
from kernel_gateway.messaging.caller import Caller
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import FileChange, Probe
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.witness import ContainerFacts, SecretVersion, Witness
from tests.unit.audit.trails import EVENTS, KERNEL_ID, LARGE, a_journal, stream

SOURCE = "print('made')"
FACTS = StartFacts(
    session=Session(
        owner=Owner(user="u1", agent="a1"), spec_name="lambda-python", workspace="w",
        scope="agent", created="2026-01-01T00:00:00.000000Z", forked_from=KERNEL_ID,
        forked_at=Head(seq=3, digest="3" * 64),
    ),
    caller=Caller(user="u1", client="rest"),
    source_digest=hashlib.sha256(SOURCE.encode()).hexdigest(),
    environment=RunsIn(
        id="default", function="lkg-env-default", handler_digest="0" * 64, python="3.12",
        memory_mb=512, tier="process",
    ),
    credentials=Credentials(
        role_arn="arn:aws:iam::000000000000:role/x", role_session_name="s",
        policy_digest="b" * 64, duration_s=900, connector_secret="lkg-connector-creds-a1",
    ),
)  # fmt: skip


ARN = "arn:aws:lambda:eu-central-1:000000000000:function:lkg-env-default"
SECRET = "arn:aws:secretsmanager:eu-central-1:000000000000:secret:lkg-connector-creds-a1-x"
WITNESS = Witness(
    begun_ms=1, ended_ms=2, connectors=("crm",), secret=SecretVersion(arn=SECRET, version_id="s1"),
    home="7" * 64, container=ContainerFacts(
        python="3.12", architecture="x86_64", function_arn=ARN, function_version="12",
        packages="8" * 64,
    ),
)  # fmt: skip


def key(path: str) -> str:
    return f"users/u1/w/{path}"


def whole_cell(*, said: str = "made\n", source: str = SOURCE) -> list[Event]:
    files = (
        FileChange(path="new file.csv", change="created", key=key("new file.csv"),
                   version_id="v/2", digest="1" * 64, size_bytes=3),
        FileChange(path="gone", change="deleted", key=key("gone"), version_id="v3"),
    )  # fmt: skip
    kept = CommittedFile(key=key("input.csv"), version_id="v1", digest="2" * 64, size_bytes=9)
    new = CommittedFile(key=key("new file.csv"), version_id="v/2", digest="1" * 64, size_bytes=3)
    gone = CommittedFile(key=key("gone"), version_id="v0", digest="9" * 64, size_bytes=1)
    probe = Probe(tier="namespaces", clean_environment=True, non_dumpable=True, memory_limit="none")
    message = stream(said)
    return [
        CellStarted(
            request_id="r1", seq=5, parent=Head(seq=4, digest="4" * 64), execution_count=1,
            timeout_s=9.5, metadata={"cellId": "c\ud800"}, gateway=FACTS,
            header={"msg_id": "m1", "msg_type": "execute_request", "session": "s"},
            content={"code": source},
        ),
        CellFinished(
            request_id="r1", status="ok", head=Head(seq=5, digest="5" * 64),
            outputs=Outputs(count=1, messages=(message,)), gateway=EndFacts(code_started="yes"),
            handler=HandlerFacts(
                status="ok", files=files, home_head="6" * 64, probe=probe,
                workspace=Workspace(count=2, files=(kept, new)), witness=WITNESS,
                inputs=Inputs(count=2, digest="a" * 64, files=(kept, gone)),
            ),
        ),
    ]  # fmt: skip


async def stated(events: list[Event]) -> list[dict[str, Any]]:
    journal = await a_journal(events, None)
    return [json.loads(line) async for line in statements(journal, "lkg-workspaces")]


def check(statement: dict[str, Any]) -> Any:
    """Return the predicate, after the published definitions took all fields of the statement."""
    read = json_format.ParseDict(statement, StatementMessage())
    Statement.copy_from_pb(read).validate()
    assert read.predicate_type == PREDICATE_TYPE
    predicate = json_format.ParseDict(statement["predicate"], Provenance())
    assert predicate.build_definition.build_type
    assert predicate.run_details.builder.id
    return predicate


def digests(resources: list[dict[str, Any]]) -> dict[str, str]:
    return {each["name"]: each["digest"]["sha256"] for each in resources if "digest" in each}


def next_cell(inputs: Inputs, parent: str) -> list[Event]:
    """Return the events of a cell that follows `whole_cell`, and changes nothing."""
    start, end = whole_cell()
    assert isinstance(start, CellStarted)
    assert isinstance(end, CellFinished)
    assert end.handler is not None
    said = replace(end.handler, files=(), inputs=inputs)
    return [
        replace(start, request_id="r2", parent=Head(seq=5, digest=parent)),
        replace(end, request_id="r2", head=None, handler=said),
    ]


def input_files(statement: dict[str, Any]) -> dict[str, str]:
    inputs = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    return digests([each for each in inputs if each.get("uri", "").startswith("s3:")])


async def test_a_statement_says_what_came_out_of_what() -> None:
    (made,) = await stated(whole_cell())
    predicate = check(made)

    journal = await a_journal(whole_cell(), None)
    entry = f"kernels/{KERNEL_ID}/entries/2"
    assert digests(made["subject"]) == {
        entry: (await journal.signed(2)).digest,
        f"{entry}/outputs": chain.digest_of(chain.messages_to_bytes([stream("made\n")])),
        "new file.csv": "1" * 64,
    }
    uri = "s3://lkg-workspaces/users/u1/w/new%20file.csv?versionId=v%2F2"
    assert made["subject"][-1]["uri"] == uri
    definition = made["predicate"]["buildDefinition"]
    assert digests(definition["resolvedDependencies"]) == {
        "handler": "0" * 64,
        f"fork of kernels/{KERNEL_ID}": "3" * 64,
        "variables/4": "4" * 64,
        "packages": "8" * 64,
        "home": "7" * 64,
        "files": "a" * 64,
        key("input.csv"): "2" * 64,
        key("gone"): "9" * 64,
    }
    inputs = {each["name"]: each for each in definition["resolvedDependencies"]}
    assert inputs[key("gone")]["uri"] == "s3://lkg-workspaces/users/u1/w/gone?versionId=v0"
    assert inputs["files"]["annotations"] == {"count": 2}
    function = {"name": "function", "uri": ARN, "annotations": {"version": "12"}}
    assert inputs["function"] == function
    used = {"versionId": "s1", "connectors": ["crm"]}
    assert inputs["connectors"] == {"name": "connectors", "uri": SECRET, "annotations": used}
    assert definition["externalParameters"]["source"] == SOURCE
    assert definition["externalParameters"]["owner"] == {"user": "u1", "agent": "a1"}
    assert predicate.run_details.builder.id.endswith(":namespaces")
    assert predicate.run_details.metadata.invocation_id == "r1"
    assert predicate.run_details.metadata.finished_on.ToJsonString() == "2026-01-01T00:00:00Z"
    products = {each["name"]: each for each in made["predicate"]["runDetails"]["byproducts"]}
    assert products["commit/5"]["digest"]["sha256"] == "5" * 64
    assert products["gone"]["annotations"] == {"change": "deleted"}


@pytest.mark.parametrize(
    ("inputs", "parent", "named"),
    [
        (Inputs(count=2, digest="a" * 64, as_committed=True), "5" * 64,
         {key("input.csv"): "2" * 64, key("new file.csv"): "1" * 64}),
        (Inputs(count=2, digest="a" * 64, as_committed=True), "e" * 64, {}),
        (Inputs(count=300, digest="a" * 64, blob="a" * 64), "5" * 64, {}),
        (Inputs(count=0, digest="a" * 64), "5" * 64, {}),
    ],
)  # fmt: skip
async def test_files_that_a_commit_left_are_inputs_of_the_cell_after_it_and_of_no_other(
    inputs: Inputs, parent: str, named: dict[str, str]
) -> None:
    # A cell that commits nothing changes nothing of that.
    failed = next_cell(inputs, "5" * 64)
    _, _, made = await stated([*whole_cell(), *failed, *next_cell(inputs, parent)])

    check(made)
    assert input_files(made) == named
    assert digests(made["predicate"]["buildDefinition"]["resolvedDependencies"])["files"]


async def test_a_cell_whose_files_were_not_brought_in_has_no_input_files() -> None:
    start, end = whole_cell()
    assert isinstance(end, CellFinished)
    assert end.handler is not None
    bare = replace(end, handler=replace(end.handler, inputs=None, witness=None))

    (made,) = await stated([start, bare])

    check(made)
    assert input_files(made) == {}
    names = digests(made["predicate"]["buildDefinition"]["resolvedDependencies"])
    assert set(names) == {"handler", f"fork of kernels/{KERNEL_ID}", "variables/4"}


async def test_each_cell_of_a_session_is_one_valid_statement() -> None:
    made = await stated(EVENTS)

    for each in made:
        check(each)
    starts = [event for event in EVENTS if isinstance(event, CellStarted)]
    ids = [each["predicate"]["runDetails"]["metadata"]["invocationId"] for each in made]
    assert ids == [event.request_id for event in starts]


async def test_a_cell_without_an_end_is_stated_as_incomplete() -> None:
    (made,) = await stated([whole_cell()[0], KernelRestarted()])

    predicate = check(made)
    assert not predicate.run_details.metadata.HasField("finished_on")
    assert made["predicate"]["runDetails"]["byproducts"] == [
        {"name": "result", "annotations": {"status": "incomplete"}}
    ]


async def test_large_output_is_the_blob_that_stands_beside_the_journal() -> None:
    journal = await a_journal(whole_cell(said=LARGE), None)
    (line,) = [line async for line in statements(journal, "lkg-workspaces")]

    said = digests(json.loads(line)["subject"])[f"kernels/{KERNEL_ID}/entries/2/outputs"]
    assert hashlib.sha256(await journal.blob(said)).hexdigest() == said


@pytest.mark.parametrize("source", ["x = '\ud800'", "\x00\x1b]0;x\x07", "'\u202e'", ""])
async def test_whatever_the_source_is_the_statement_is_valid(source: str) -> None:
    (made,) = await stated(whole_cell(source=source))

    check(made)


async def test_a_signed_statement_is_verified_with_the_exported_keys(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path)
    journal = await a_journal(whole_cell(), keys)
    (line,) = [line async for line in statements(journal, "lkg-workspaces")]

    envelope = dsse.Envelope.from_dict(json.loads(await keys.seal(line, PAYLOAD_TYPE)))

    assert envelope.payload_type == "application/vnd.in-toto+json"
    assert envelope.verify(list(keys.keys().values()), 1)
    check(json.loads(envelope.payload))


async def test_a_signed_statement_is_never_taken_for_an_entry(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path)
    entry = await (await a_journal(whole_cell(), keys)).signed(1)
    payload = entry.envelope.payload_bytes
    as_statement = json.loads(await keys.seal(payload, PAYLOAD_TYPE))

    with pytest.raises(InvalidField):
        envelopes.Envelope.from_json(as_statement)
    forged = envelopes.Envelope.from_json(as_statement | {"payloadType": envelopes.PAYLOAD_TYPE})
    with pytest.raises(BadSignature):
        check_signature(forged, keys.keys())
    assert check_signature(entry.envelope, keys.keys())
