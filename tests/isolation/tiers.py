"""One gateway with an environment per tier, and the code that attacking cells share."""

from __future__ import annotations

TIERS = {
    "namespaces": "lambda-python",
    "process": "lambda-process",
    "lambda-strict": "lambda-strict",
}
"""Tier to kernelspec; the default environment is that of the default tier."""

IMPOSSIBLE = "lambda-impossible"
"""An environment that demands a tier which its container cannot have."""

DEGRADED = "lambda-degraded"
"""The same, but it runs cells all the same because it was told to."""

CONFIG = """
[[environment]]
id = "process"
tier = "process"

[[environment]]
id = "strict"
tier = "process"
lambda_strict = true

[[environment]]
id = "impossible"
tier = "namespaces"
lambda_strict = true

[[environment]]
id = "degraded"
tier = "namespaces"
lambda_strict = true
allow_degraded = true
preload = []
"""

PRELUDE = """
import ctypes, errno, os, signal, socket, subprocess, sys, time
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        print(errno.errorcode[error.errno], end=" ")
    else:
        print("succeeded", end=" ")

def read(path):
    with open(path, "rb") as file:
        file.read(1)

def write(path, text="0"):
    with open(path, "w") as file:
        file.write(text)
"""
