"""What belongs to its process for good, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lambda_kernel.child.rehydrators.registry import NotCarried


def _refuse(why: str, hint: str = "") -> Callable[[Any], NoReturn]:
    def refuse(obj: Any) -> NoReturn:
        raise NotCarried(why, hint)

    return refuse


generator = _refuse("a running generator cannot be stored", "{name} = list({name})")
async_generator = _refuse(
    "a running async generator cannot be stored", "{name} = [x async for x in {name}]"
)
coroutine = _refuse("a coroutine or task ends with the cell that started it", "await {name}")
event_loop = _refuse("every cell has an event loop of its own", "asyncio.get_running_loop()")
socket = _refuse(
    "an open connection ends with the cell that opened it",
    "connect again in the cell that uses it",
)
selector = _refuse(
    "it watches descriptors of its process", "make it again in the cell that uses it"
)
executor = _refuse(
    "its workers end with the cell that started them",
    "open it with `with` in the cell that uses it",
)
process = _refuse(
    "a process ends with the cell that started it", "{name}.join() and keep what it computed"
)
pool = _refuse(
    "its workers end with the cell that started them",
    "with multiprocessing.Pool() as {name}: ... in the cell that uses it",
)
process_queue = _refuse(
    "it connects processes of one cell", "take out what it holds: [{name}.get() for _ in range(n)]"
)
process_lock = _refuse("it is shared by processes of one cell", "make it in the cell that uses it")
manager = _refuse("its server process ends with the cell", "keep a plain copy of what it holds")
connection = _refuse("it connects processes of one cell", "keep what was received")
shared_memory = _refuse("shared memory ends with the cell", "keep a copy: bytes({name}.buf)")
compressed_file = _refuse(
    "a compressed file cannot be entered in its middle",
    "close it and open it again in the cell that uses it",
)
memory_map = _refuse("a memory map belongs to the process of its cell", "keep {name}[:]")
csv_reader = _refuse("it stands in the middle of its rows", "{name} = list({name})")
csv_writer = _refuse(
    "it writes to a file of its process", "make it again: csv.writer(file), the file is kept"
)
scandir = _refuse("it stands in the middle of a folder", "{name} = [e.path for e in {name}]")
hdf5 = _refuse(
    "an open HDF5 file belongs to the process of its cell",
    "close it and open it again in the cell that uses it",
)
token = _refuse("it undoes a change of its own cell only", "keep the old value and set it again")
context = _refuse("it holds values of every library in its process", "dict({name})")
frame = _refuse(
    "a frame or traceback belongs to the process of its cell",
    "keep its text: traceback.format_exc()",
)
digest = _refuse(
    "a running digest cannot be stored", "keep {name}.hexdigest(), or the data it has seen"
)
library = _refuse("a loaded library belongs to the process of its cell", "load it again")
ssl_context = _refuse(
    "it may hold keys, and OpenSSL cannot store it", "ssl.create_default_context()"
)
cursor = _refuse("it stands in the middle of its rows", "{name}.fetchall() and keep the rows")
relation = _refuse("it is a query that is not computed yet", "{name} = {name}.df()")
aws_session = _refuse("it may hold credentials", "keep a boto3.Session, which is made again")
aws_credentials = _refuse(
    "credentials are never stored", "boto3.Session().get_credentials() in the cell that uses them"
)
