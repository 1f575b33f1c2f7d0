"""The attacks of battery.toml, and what their code may use."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ALL_REFUSED = r"(refused.*\n)+"

PRELUDE = '''
import ctypes, errno, gc, glob, json, os, re, signal, socket, struct, subprocess, sys, time
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def libc(name, *arguments):
    ctypes.set_errno(0)
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempt(action, *arguments):
    try:
        got = action(*arguments)
    except BaseException as error:
        print("refused", type(error).__name__)
    else:
        print("GOT", repr(got)[:200])


def show(found):
    """Print what was found, or that nothing was."""
    print("GOT" if found else "refused", repr(found)[:200])


def read(path, size=4096):
    with open(path, "rb") as file:
        return file.read(size)


def others():
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]


def frames():
    return unix_socket(socket.SOCK_STREAM)


def pager():
    return unix_socket(socket.SOCK_SEQPACKET)


def unix_socket(kind):
    # An event loop has sockets of its own, which nobody reads.
    for fd in (*range(900, 910), *range(3, 64)):
        try:
            sock = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        if sock.family == socket.AF_UNIX and sock.type == kind:
            return sock
        sock.close()


def say(data):
    """Send a message as the child's own code would."""
    text = json.dumps(data).encode()
    body = struct.pack("!II", 1, len(text)) + text
    frames().sendall(struct.pack("!I", len(body)) + body)


forged = "FOR" + "GED"
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        boundary: which boundary it tries to cross (a row of the README's table).
        name: what it goes for.
        code: what the cell runs after PRELUDE.
        seen: a regular expression that the whole standard output must match.
        beside: the same, in tiers where what it goes for is within its reach and refuses it; where
            the cell has namespaces of its own there is nothing.
        told: a regular expression for something in what the client is sent: what was said did
            arrive, and was not believed.
    """

    boundary: str
    name: str
    code: str
    seen: str
    beside: str
    told: str


def read_battery() -> Iterator[Attack]:
    """Yield the attacks, each repeated one by one."""
    text = Path(__file__).with_name("battery.toml").read_text()
    for table in tomllib.loads(text)["attack"]:
        # What is sent through the frames socket may end the cell; only its effect counts.
        usual = ".*" if table["boundary"] == "frames" else ALL_REFUSED
        seen = table.get("seen", usual)
        for each in table.get("each", [""]):
            yield Attack(
                boundary=table["boundary"],
                name=table["name"].replace("@each@", each),
                code=table["code"].replace("@each@", each),
                seen=seen,
                beside=table.get("beside", seen),
                told=table.get("told", ""),
            )


ATTACKS = tuple(read_battery())

BOUNDARIES = {
    "credentials": "a cell and the credentials of the serving process",
    "host": "a cell and the machine: files, kernel settings, devices, privileges",
    "network": "a cell and every network, and S3 and STS without credentials",
    "runtime": "a cell and the Runtime API that hands out invocations",
    "frames": "what a cell may say and what the client is told",
    "scopes": "one scope's cells and the next scope's on the same container",
    "files": "what a cell leaves in its folder and what is uploaded of it",
}


def readme_table() -> str:
    """Return the rows of the README's table "What isolates what"."""
    rows = []
    for boundary, between in BOUNDARIES.items():
        names = [attack.name for attack in ATTACKS if attack.boundary == boundary]
        shown = ", ".join(names[:: max(1, len(names) // 3)][:3])
        rows.append(f"| {boundary} | {between} | {len(names)} | {shown} |")
    return "\n".join(rows)
