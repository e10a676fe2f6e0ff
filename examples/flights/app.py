"""The application: departures from New York per airport and hour, lateness handed on per aircraft, a top ten.

Run it with ``stateflow run examples/flights/app.py:app``. It reads the topic ``flights`` that ``feed.py``
fills and writes ``flights-hourly``, ``flights-aircraft`` and ``flights-top``. ``oracle.py`` states the same
results in SQL and defines every word.

Order matters only per aircraft, and the feed keys its topic by aircraft: one aircraft's flights stay in one
source partition, and a re-key step keeps the order of what comes from one. What leaves an airport comes
from all source partitions; event time there is that of the slowest, so no flight is late however the
partitions advance.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

import stateflow as sf

LATE_ARRIVAL_MINUTES = 15
PLACES = 10
HOUR_MS = 3_600_000
KEPT = timedelta(days=400)  # every hour of the year can be looked up; a service would keep a week or so


class Flight(msgspec.Struct, frozen=True):
    """One departure from New York; ``departed_ms`` and both delays are null for a cancelled flight."""

    carrier: str
    flight: int
    tailnum: str | None
    aircraft: str | None
    origin: str
    dest: str
    scheduled_ms: int
    departed_ms: int | None
    departure_delay_minutes: int | None
    arrival_delay_minutes: int | None
    visibility_miles: float | None


class AirportHour(msgspec.Struct, frozen=True):
    """What left one airport in one UTC hour; delays are over the flights that did leave."""

    origin: str
    hour_ms: int
    flights: int
    cancelled: int
    delay_mean_minutes: float | None
    delay_p95_minutes: int | None
    visibility_miles_min: float | None


class AircraftDelays(msgspec.Struct, frozen=True):
    """What late arrivals of one aircraft did to its next departures from New York, so far."""

    tailnum: str
    aircraft: str | None
    late_arrivals: int = 0
    handed_on_minutes: int = 0
    handed_on_minutes_max: int = 0
    longest_chain: int = 0


class LastFlight(msgspec.Struct, frozen=True):
    """The flight before: how late it arrived (null when that is not known), and how long the chain is."""

    arrival_delay_minutes: int | None
    chain: int


def nearest_rank(histogram: Mapping[int, int], percent: int) -> int | None:
    """The exact percentile: of n values in ascending order the one at place ceil(n · percent / 100)."""
    place = -(-sum(histogram.values()) * percent // 100)
    for value in sorted(histogram):
        place -= histogram[value]
        if place <= 0:
            return value
    return None


def airport_hour(window: sf.Windowed[str], kept: Mapping[str, Any]) -> AirportHour:
    """One hour's result."""
    delays: Mapping[int, int] = kept["delays"]
    left = sum(delays.values())
    return AirportHour(
        origin=window.key,
        hour_ms=window.start_ms,
        flights=kept["flights"],
        cancelled=kept["flights"] - left,
        delay_mean_minutes=sum(delay * times for delay, times in delays.items()) / left if left else None,
        delay_p95_minutes=nearest_rank(delays, 95),
        visibility_miles_min=kept["visibility"],
    )


class HandedOn(sf.Operator[str, Flight, AircraftDelays]):
    """Follows one aircraft from departure to departure."""

    delays: sf.Value[AircraftDelays | None] = sf.state()
    last: sf.Value[LastFlight | None] = sf.state()

    def on_record(self, flight: Flight, ctx: sf.Context[AircraftDelays]) -> None:
        """Compare a departure with the arrival before it."""
        before, chain = self.last.get(), 0
        if before is not None and (before.arrival_delay_minutes or 0) > LATE_ARRIVAL_MINUTES:
            minutes = max(0, flight.departure_delay_minutes or 0)
            chain = before.chain + 1 if minutes else 0
            self._add(flight, minutes, chain, ctx)
        self.last.set(LastFlight(flight.arrival_delay_minutes, chain))

    def _add(self, flight: Flight, minutes: int, chain: int, ctx: sf.Context[AircraftDelays]) -> None:
        known = self.delays.get() or AircraftDelays(ctx.key, flight.aircraft)
        delays = msgspec.structs.replace(
            known,
            late_arrivals=known.late_arrivals + 1,
            handed_on_minutes=known.handed_on_minutes + minutes,
            handed_on_minutes_max=max(known.handed_on_minutes_max, minutes),
            longest_chain=max(known.longest_chain, chain),
        )
        self.delays.set(delays)
        ctx.emit(delays)


def has_flown(flight: Flight) -> bool:
    """True for a flight that left, with an aircraft that is known."""
    return flight.departed_ms is not None and flight.tailnum is not None


app = sf.App(
    "flights",
    options=sf.AppOptions(
        partitions=4,
        guarantee="exactly-once",
        commit_interval_seconds=0.25,
        # A year is replayed in minutes here: a partition that is silent for 5 s would let weeks of event time pass.
        idle_seconds=600,
        # A killed worker's open transaction is given up after 10 s: the cleaner must not touch what is younger.
        client={"transaction.timeout.ms": 10_000},
    ),
)
flights = app.topic("flights", key=str, value=Flight)
hourly = app.topic("flights-hourly", key=sf.WindowedKey(sf.String, HOUR_MS), value=AirportHour, partitions=4)
aircraft = app.topic("flights-aircraft", key=str, value=AircraftDelays, partitions=4)
top = app.topic("flights-top", key=str, value=sf.Json, partitions=1)

departures = app.stream(flights)

(
    departures.key_by("origin", name="by-airport", key=str)
    .window(sf.Tumbling(timedelta(hours=1), grace=timedelta(hours=1)))
    .aggregate(
        name="hourly",
        ttl=KEPT,
        flights=sf.count(),
        delays=sf.histogram("departure_delay_minutes"),
        visibility=sf.min("visibility_miles", type=float),
    )
    .map_pairs(airport_hour)
    .to(hourly)
)

handed_on = (
    departures.filter(has_flown)
    .key_by("tailnum", name="by-aircraft", key=str)
    .process(HandedOn, name="handed-on")
)
handed_on.to(aircraft)

(
    handed_on.filter(lambda delays: delays.handed_on_minutes > 0)
    .key_by(lambda _: "all", name="ranking", key=str)
    .aggregate(sf.top_k(PLACES, by="handed_on_minutes", item="tailnum"), name="top")
    .to(top)
)

if __name__ == "__main__":
    app.main()
