"""Questions about a session that change nothing: its variables, and one of them as text."""

from __future__ import annotations

import uuid
from contextlib import aclosing

from kernel_gateway.dispatch.plan import plan_query
from kernel_gateway.dispatch.run import Flight
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import GatewayError, NotFound
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.variables import Variable, variables_of

SHOWN_CHARACTERS = 1000


class QueryFailed(GatewayError):
    """No container showed the variable; the message is for the caller."""

    http_status = 502


async def variables(lineage: Lineage, services: KernelServices) -> list[Variable]:
    """Return what the kernel's newest commit holds, by name (raises StorageError)."""
    commit = await lineage.commit_at(await lineage.look())
    if commit is None:
        return []
    return await variables_of(commit, services.store, services.stack.state, lineage.scope)


async def represent(
    lineage: Lineage, environment: Environment, services: KernelServices, name: str
) -> dict[str, object]:
    """Return the REST form of a variable, and its ``repr``, which a container makes.

    Where that raises, ``repr`` is None and ``error`` says what.

    Cells go on meanwhile: it is as the newest commit has it.

    Raises:
        NotFound: the session has no such name.
        QueryFailed: no container answered.
        StorageError: S3 does not answer.
    """
    found = [each for each in await variables(lineage, services) if each.name == name]
    if not found:
        raise NotFound(f"there is no variable {name!r}")
    model: dict[str, object] = found[0].to_dict()
    if found[0].carried:
        model |= await _ask(lineage, environment, services, name)
    return model


async def _ask(
    lineage: Lineage, environment: Environment, services: KernelServices, name: str
) -> dict[str, str | None]:
    position = await lineage.look()
    facts = lineage.facts(position, position.execution_count, environment)
    invocation = plan_query(
        "variables", {"name": name}, facts, request_id=uuid.uuid4().hex, nonce=uuid.uuid4().hex
    )
    flight = Flight(invocation=invocation)
    function_name = services.stack.function_name(environment.id)
    settled = Settled()
    try:
        async with aclosing(services.dispatcher.run_cell(flight, function_name)) as events:
            async for event in events:
                if isinstance(event, Settled):
                    settled = event
    finally:
        await services.dispatcher.clean_up(flight)
    return _answer(settled)


def _answer(settled: Settled) -> dict[str, str | None]:
    if settled.trouble is not None:
        failure, detail = settled.trouble.failure, settled.trouble.detail
        raise QueryFailed(f"{failure.ename}: {failure.text}" + (f" ({detail})" if detail else ""))
    content = (settled.reply or {}).get("content")
    if not isinstance(content, dict):
        raise QueryFailed("the container gave no answer")
    if content.get("status") != "ok":
        said = f"{content.get('ename')}: {content.get('evalue')}"
        return {"repr": None, "error": said[:SHOWN_CHARACTERS]}
    data = content.get("data")
    text = data.get("text/plain") if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise QueryFailed("the container gave no text")
    return {"repr": text[:SHOWN_CHARACTERS]}
