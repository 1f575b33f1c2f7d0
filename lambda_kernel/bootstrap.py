"""What a function's image runs: fetch the handler, check it, become it.

This file is copied into images and imports nothing of ``lambda_kernel``.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import re
import stat
import sys
import zipfile
from pathlib import Path, PurePosixPath

URI = re.compile(r"s3://(?P<bucket>[a-z0-9.-]+)/(?P<key>handler/(?P<digest>[0-9a-f]{64})/[\w.-]+)")
FALLBACK_DIR = "/tmp/.lkg-handler"  # noqa: S108  (the only writable place on AWS Lambda)
MAX_BYTES = 64 * 1024 * 1024


class BootstrapError(RuntimeError):
    """The handler cannot be run; the message says why."""


def fetch(uri: str) -> bytes:
    """Return the handler archive named by ``uri``, whose SHA-256 is that in its key.

    Raises:
        BootstrapError: the URI has another form, or the bytes another digest.
    """
    match = URI.fullmatch(uri)
    if match is None:
        raise BootstrapError("LKG_HANDLER_URI is not s3://<bucket>/handler/<sha256>/<name>")
    import boto3
    from botocore.config import Config

    local = "AWS_ENDPOINT_URL_S3" in os.environ
    config = Config(s3={"addressing_style": "path"} if local else {})
    client = boto3.client("s3", config=config)
    body: bytes = client.get_object(Bucket=match["bucket"], Key=match["key"])["Body"].read()
    client.close()
    return checked(body, match["digest"])


def checked(body: bytes, digest: str) -> bytes:
    """Return ``body`` if its SHA-256 is ``digest`` (raises BootstrapError)."""
    found = hashlib.sha256(body).hexdigest()
    if found != digest:
        raise BootstrapError(f"the handler has SHA-256 {found}, its key says {digest}")
    return body


def unpack(body: bytes, folder: Path) -> None:
    """Write the files of the archive ``body`` under ``folder``.

    Raises:
        BootstrapError: an entry is no plain file or would lie outside ``folder``.
    """
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > MAX_BYTES:
            raise BootstrapError("the handler is too large")
        for entry in entries:
            path = PurePosixPath(entry.filename)
            mode = entry.external_attr >> 16
            if path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
                raise BootstrapError(f"the handler holds an unsafe name: {entry.filename!r}")
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise BootstrapError(f"the handler holds a special file: {entry.filename!r}")
            if entry.is_dir():
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(archive.read(entry))


def choose_folder() -> Path:
    """Return an empty writable folder: the current one, else one in ``/tmp``."""
    here = Path.cwd()
    if os.access(here, os.W_OK) and not any(here.iterdir()):
        return here
    fallback = Path(FALLBACK_DIR)
    fallback.mkdir(mode=0o700)
    return fallback


def report_failure(error: BaseException) -> None:
    """Tell the Runtime API that the function cannot start."""
    api = os.environ.get("AWS_LAMBDA_RUNTIME_API")
    if not api:
        return
    kind = f"Runtime.{type(error).__name__}"
    body = json.dumps({"errorMessage": str(error), "errorType": kind, "stackTrace": []})
    connection = http.client.HTTPConnection(api, timeout=10)
    connection.request(
        "POST",
        "/2018-06-01/runtime/init/error",
        body,
        {"Content-Type": "application/json", "Lambda-Runtime-Function-Error-Type": kind},
    )
    connection.getresponse().read()
    connection.close()


def main() -> None:
    """Fetch, check and unpack the handler, then replace this process by it."""
    try:
        body = fetch(os.environ.get("LKG_HANDLER_URI", ""))
        folder = choose_folder()
        unpack(body, folder)
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-s", "-m", "lambda_kernel"], os.environ)  # noqa: S606
    except Exception as error:  # noqa: BLE001  (whatever it is, the platform must learn of it)
        sys.stderr.write(json.dumps({"level": "ERROR", "message": f"bootstrap: {error!r}"}) + "\n")
        try:
            report_failure(error)
        finally:
            sys.exit(1)


if __name__ == "__main__":
    main()
