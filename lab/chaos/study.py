"""Running a study: round after round, then the end of the input, and everything compared with the oracle."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stateflow.errors import StateflowError
from stateflow.lab.chaos.actions import carry_out
from stateflow.lab.chaos.oracle import Comparison, compare_rows, compare_state, compare_totals, truth
from stateflow.lab.chaos.plan import Round, Size, plan
from stateflow.lab.chaos.report import Report
from stateflow.lab.chaos.running import GaveUp
from stateflow.lab.chaos.shop import Shop
from stateflow.lab.chaos.site import Site, open_site

Tell = Callable[[str], None]


def run_study(
    seed: int, size: Size, brokers: int, place: Path, tell: Tell, bootstrap: str | None = None
) -> Report:
    """The whole study; ``tell`` is given a line of progress per round.

    ``bootstrap`` names brokers that are there already, for a size whose kinds leave brokers alone.
    """
    began = time.monotonic()
    report = Report(seed, brokers)
    rounds = plan(seed, size, brokers)
    shop = Shop(seed)
    with open_site(bootstrap, size.partitions_first, place, report) as site:
        try:
            site.processes.start()
            for number, one in enumerate(rounds, 1):
                _round(
                    site,
                    shop,
                    one,
                    is_last=number == len(rounds),
                    said=f"round {number}/{len(rounds)}",
                    tell=tell,
                )
            site.processes.stop()
            site.processes.drain()
            compare(site)
        except GaveUp as failure:
            tell(str(failure))
        except StateflowError as failure:
            report.note_stuck(f"the study itself could not go on: {failure}")
    report.seconds = time.monotonic() - began
    return report


def _round(site: Site, shop: Shop, one: Round, *, is_last: bool, said: str, tell: Tell) -> None:
    began, report = time.monotonic(), site.report
    before = len(report.findings)
    for number, records in enumerate(shop.round(one.orders, one.chunks, is_last=is_last)):
        site.feed(records)
        for place, event in one.events:
            if place == number:
                carry_out(site, event)
                report.events[event.kind] += 1
    site.settle()
    report.rounds += 1
    events = "; ".join(str(event) for _, event in one.events)
    found = "".join(f"\n  {finding}" for finding in report.findings[before:])
    tell(f"{said}: {time.monotonic() - began:.0f} s, {events}{found}")


def compare(site: Site) -> None:
    """Everything that there is, with everything that there must be."""
    report = site.report
    expected = truth(site.sent())
    report.results = expected.rows.total()
    report.compared = Comparison()
    compare_rows(expected.rows, site.rows(), report.compared)
    compare_totals(expected.state["shops"], site.totals(), report.compared)
    compare_state(expected.state, site.state(), report.compared)
