"""AutoGen's Jupyter executor on a gateway: ``autogen_program.py HOST PORT TOKEN``; prints JSON."""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor
from autogen_ext.code_executors.docker_jupyter._jupyter_server import JupyterConnectionInfo

FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


async def main() -> None:
    host, port, token = sys.argv[1:]
    server = JupyterConnectionInfo(host=host, use_https=False, port=int(port), token=token)
    with TemporaryDirectory() as folder:
        executor = DockerJupyterCodeExecutor(server, output_dir=Path(folder))
        async with executor:
            said = [
                await executor.execute_code_blocks(
                    [CodeBlock(code=code, language="python")], CancellationToken()
                )
                for code in ("x = 20\nprint('hello')", "print(x + 1)", FIGURE, "1 / 0")
            ]
            await executor.restart()
            after = await executor.execute_code_blocks(
                [CodeBlock(code="print('x' in globals())", language="python")], CancellationToken()
            )
        facts = [(result.exit_code, result.output) for result in (*said, after)]
        print(json.dumps({"said": facts, "files": [Path(f).suffix for f in said[2].output_files]}))


asyncio.run(main())
