"""`waltool repair`"""

from __future__ import annotations

import os
from typing import Any

import click

from sirius.errors import UsageError
from sirius.wal.repair.repair import repair
from sirius.wal.repair.report import Action, RepairReport, What
from sirius.wal.store import SEGMENTS
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output
from waltool.progress import Progress
from waltool.source import kind_of
from waltool.text import escape, plural

_STYLES = {
    What.LOST: "red",
    What.HOLE: "yellow",
    What.UNTRUSTED: "red",
    What.GIVEN_UP: "yellow",
}


@_command("waltool repair --dry-run films", "waltool repair --accept-loss films")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Give up what cannot be saved: the ranges become holes. A peer may still have them.",
)
@click.option(
    "--discard-journal",
    is_flag=True,
    help="Give up a journal that is damaged: the node loses its vote and rejoins as a learner.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@log_argument
def command(out: Output, log: str, accept_loss: bool, discard_journal: bool, dry_run: bool) -> int:
    """Mend a damaged log as far as its bytes allow.

    Makes a lost manifest and wrong indexes anew, cuts off a torn tail, and saves from damaged segments every record
    that its checksum vouches for. A segment of which something is lost stays as it is, unless you accept the loss.
    Removes nothing: what was replaced is kept in the folder quarantine.

    A damaged journal of a cluster's member cannot be mended: a vote that was forgotten could undo a decision. It stays,
    and the node does not start, unless you discard it. Then the node has a new identity and no vote until the cluster
    has taken it in again. Never discard the journals of so many members that no majority remembers.

    The log must not be open for writing. Exits with 1 if something is lost, or was given up.
    """
    # A log whose manifests are gone altogether does not look like one, and is just what repair is for.
    if not os.path.isdir(f"{log}/{SEGMENTS}") and kind_of(log) != "sirius":
        raise UsageError(f"{log} is not the folder of a Sirius log, and only those can be repaired")
    with Progress("repairing", 0, shown=out.shows_progress, unit="bytes") as bar:
        report = repair(
            log,
            accept_loss=accept_loss,
            discard_journal=discard_journal,
            dry_run=dry_run,
            progress=bar.at,
        )
    for action in report.actions:
        _show(out, action)
    _sum_up(out, report)
    return 1 if report.lost or report.holes or report.journal else 0


def _show(out: Output, action: Action) -> None:
    if out.as_json:
        out.object(_object(action))
        return
    what = out.paint(action.what, style) if (style := _STYLES.get(action.what)) else action.what
    last = "?" if action.last is None else f"{action.last:,}"
    covered = f"{action.first:,} to {last}" if action.first else ""
    detail = ", ".join(part for part in (covered, escape(action.detail)) if part)
    out.line(f"{escape(action.path)}: {what}{f' ({detail})' if detail else ''}")


def _object(action: Action) -> dict[str, Any]:
    return {
        "what": action.what.name.lower(),
        "path": action.path,
        "first": action.first,
        "last": action.last,
        "detail": action.detail,
    }


def _sum_up(out: Output, report: RepairReport) -> None:
    lost, holes = len(report.lost), len(report.holes)
    if out.as_json:
        state = {"log": report.path, "dry_run": report.dry_run, "changed": report.changed}
        journal = report.journal.name.lower() if report.journal else None
        out.object({**state, "lost": lost, "given_up": holes, "journal": journal})
        return
    verb = "would be " if report.dry_run else ""
    mended = f"{verb}repaired" if report.changed else "nothing to repair"
    wrong = lost or report.journal
    parts = [mended if report.changed or not wrong else f"nothing {verb}changed"]
    if lost:
        parts.append(
            f"{plural(lost, 'range')} lost; --accept-loss gives up what a peer cannot send"
        )
    if holes:
        parts.append(f"{plural(holes, 'range')} given up")
    if report.journal == What.UNTRUSTED:
        parts.append("the journal is damaged; --discard-journal gives up the node's vote")
    elif report.journal == What.GIVEN_UP:
        parts.append("the journal given up")
    out.line(f"{escape(report.path)}: {', '.join(parts)}")
