"""Entry point of the container: isolate first, then import and start serving."""

from __future__ import annotations

import logging
import os
import signal
import sys

from lambda_kernel.isolation import reexec
from lambda_kernel.isolation.logs import log_as_json


def main() -> None:
    """Run stage 1 (replace the process) or stage 2 (serve until the container ends)."""
    log_as_json(os.environ.get("LKG_LOG_LEVEL", "INFO"))
    # The first process of a container is immune to signals from inside, but for those that it
    # handles; of these Python makes one, and nobody sends it but a cell in the tier `process`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not reexec.is_stage_2(sys.argv):
        reexec.enter_stage_2()
    try:
        stage = reexec.read_stage_2(sys.argv)
    except reexec.StageMismatch:
        logging.getLogger(__name__).exception("credential isolation failed")
        sys.exit(1)
    logging.getLogger().setLevel(stage.platform.get("LKG_LOG_LEVEL", "INFO"))
    # Only now: nothing of serving is imported while the environment holds credentials.
    from lambda_kernel.serving import container

    container.serve(stage)


if __name__ == "__main__":
    main()
