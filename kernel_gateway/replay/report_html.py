"""A report as one HTML page that needs nothing else and runs nothing."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from kernel_gateway.replay.cells import Execution
from kernel_gateway.replay.report_view import Viewing
from kernel_gateway.replay.verdicts import Standing
from kernel_gateway.replay.visible import visible

if TYPE_CHECKING:
    from kernel_gateway.replay.report import Report

GLYPHS = {
    Standing.IDENTICAL: "=",
    Standing.EQUIVALENT: "≈",
    Standing.DECLARED: "~",
    Standing.DIFFERENT: "≠",
    Standing.FAILED: "✗",
    Standing.FIXED: "↑",
    Standing.UNAVAILABLE: "?",
    Standing.NOT_REPLAYABLE: "-",
    Standing.SKIPPED: "»",
}
SAME = (Standing.IDENTICAL, Standing.EQUIVALENT)
QUIET = (Standing.IDENTICAL, Standing.EQUIVALENT, Standing.DECLARED)


def html_page(report: Report) -> str:
    """Return the page. No text of a cell acts in it: no script, no link, nothing fetched."""
    viewing = Viewing(rules=report.rules)
    views = [viewing.cell(cell.pair, cell.verdict) for cell in report.cells]
    detailed = [view for view in views if view.is_detailed]
    page = _template().render(
        report=report,
        views=views,
        loud=[view for view in detailed if view.verdict.standing not in QUIET],
        quiet=[view for view in detailed if view.verdict.standing in QUIET],
        total=len(views),
        headline=headline(report),
        lead=_lead(report),
        facts=_facts(report),
        footer=_footer(report),
        css=Markup(_text("report.css")),  # noqa: S704  (a file of ours)
        glyphs=GLYPHS,
        seconds=_seconds,
    )
    # A lone surrogate that came through unseen could not be written.
    return page.encode("utf-8", "replace").decode("utf-8")


def headline(report: Report) -> str:
    """Return what came of a replay in one sentence."""
    total = len(report.cells)
    if not total:
        return "There was nothing to replay"
    same_count = sum(report.counts.get(standing, 0) for standing in SAME)
    if same_count == total:
        return "Every cell came out the same" if total > 1 else "The cell came out the same"
    return f"{same_count:,} of {total:,} cells came out the same"


def _lead(report: Report) -> str:
    counts = report.counts
    words = {
        Standing.DIFFERENT: "differ",
        Standing.FAILED: "failed",
        Standing.FIXED: "failed when recorded and did not now",
        Standing.DECLARED: "may differ, as their author declared",
        Standing.UNAVAILABLE: "need something that is gone",
        Standing.NOT_REPLAYABLE: "cannot be replayed",
        Standing.SKIPPED: "were skipped",
    }
    said = [f"{counts[each]:,} {text}" for each, text in words.items() if counts.get(each)]
    return f"{', '.join(said)}." if said else "Outputs and files are as recorded."


def _facts(report: Report) -> list[tuple[str, str]]:
    trail = report.trail
    whose = trail.user if trail.agent is None else f"{trail.user}, agent {trail.agent}"
    facts = [
        ("Kernel", trail.kernel_id),
        ("Recorded for", whose),
        ("Journal", f"{trail.entries:,} entries, head {trail.head[:16]}…"),
        ("Verification", trail.verified or "not asked for"),
        ("Environment", trail.environment or "not said"),
        ("Replayed by", report.replayer),
        ("Mode", report.mode),
        ("Network", report.network),
        ("Started", report.started),
        ("Finished", report.finished),
        ("Replay", report.replay_id),
        ("Rules", ", ".join(report.rules.sources) or "none"),
    ]
    if report.parameters:
        given = ", ".join(f"{name} = {value!r}" for name, value in report.parameters.items())
        facts.append(("Parameters", given[:500]))
    return facts


def _footer(report: Report) -> str:
    rules = "; ".join(
        f"{visible(name)} {digest[:12]}" for name, digest in report.rules.sources.items()
    )
    return (
        "Outputs and files decide a cell's verdict; state is reported. What cells printed is shown "
        "as it was, control characters as signs. report.json has every reason, replay.ipynb the "
        f"replayed outputs. Rules: {rules or 'none'}."
    )


def _seconds(execution: Execution | None) -> str:
    if execution is None or execution.duration_s is None:
        return "-"
    return f"{execution.duration_s:.2f}"


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = lambda value: visible(str(value))
    return environment.from_string(_text("report.html.jinja"))


def _text(name: str) -> str:
    return files("kernel_gateway.replay").joinpath(name).read_text(encoding="utf-8")
