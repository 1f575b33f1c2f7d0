"""When a container's isolation is worse than its environment demands."""

from __future__ import annotations

import pytest

from lambda_kernel.contract.outcome import Probe
from lambda_kernel.serving.probing import shortfall

REFUSED = {"environ": True, "mem": True}


def probe(
    tier: str, *, clean: bool = True, safe: bool = True, reasons: dict[str, str] | None = None
) -> Probe:
    return Probe(
        tier=tier,
        clean_environment=clean,
        non_dumpable=safe,
        memory_limit="sampled",
        refused=REFUSED | dict.fromkeys(reasons or {}, False),
        reasons=reasons or {},
    )


@pytest.mark.parametrize(
    ("real", "demanded"),
    [("process", "process"), ("namespaces", "namespaces"), ("namespaces", "process")],
)
def test_a_tier_that_is_as_good_as_demanded_will_do(real: str, demanded: str) -> None:
    assert shortfall(probe(real), demanded) is None


@pytest.mark.parametrize(
    ("found", "demanded", "words"),
    [
        (probe("process"), "namespaces", "they share the container's"),
        (
            probe("process", safe=False, reasons={"probe": "unshare: refused"}),
            "namespaces",
            "unshare: refused",
        ),
        (
            probe("process", reasons={"namespaces": "shared with the container: net"}),
            "namespaces",
            "shared with the container: net",
        ),
        (probe("process", clean=False), "process", "a credential"),
        (probe("process", safe=False, reasons={"probe": "it hangs"}), "process", "it hangs"),
        (
            probe("process", safe=False, reasons={"mem": "pid 1: succeeded"}),
            "process",
            "could read other processes (mem: pid 1: succeeded)",
        ),
    ],
)
def test_a_shortfall_is_told_in_words(found: Probe, demanded: str, words: str) -> None:
    said = shortfall(found, demanded)
    assert said is not None
    assert words in said
