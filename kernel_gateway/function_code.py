"""Which code a Lambda function runs, as Lambda says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCode:
    """The code that ran a cell; every field is Lambda's word.

    Attributes:
        version: that ran, from the answer to the Invoke (``ExecutedVersion``).
        arn: of the function.
        code_sha256: of the deployment package, base64; of a container image, its digest. None
            where Lambda did not say.
        package_type: ``Zip`` or ``Image``.
        last_modified: when the function was changed last; ISO 8601.
        revision_id: of its configuration.
        asked: when Lambda was asked for all but the version: after the first cell of the container.
            Where ``last_modified`` is later than that container's start, it is not known what the
            container runs. ISO 8601, UTC.
        problem: why Lambda did not say.

    Source: AWS Lambda API, GetFunctionConfiguration.
    """

    version: str
    arn: str | None = None
    code_sha256: str | None = None
    package_type: str | None = None
    last_modified: str | None = None
    revision_id: str | None = None
    asked: str | None = None
    problem: str | None = None
