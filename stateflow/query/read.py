"""State as an Arrow table in this process: what ``stateflow.read_state`` does, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateflow.catalog.control import ControlTopic
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.config import AppOptions, resolve
from stateflow.errors import SetupError, install_command
from stateflow.log.base import Cluster
from stateflow.log.client_file import BROKERS, client_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from stateflow.query.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """Which table of state is asked for."""

    app: str
    store: str
    as_of: str | None = None
    """Name of a savepoint; None for the state as the last commits left it."""
    location: str | None = None
    """Where the savepoint is, if not where the application's list says."""
    columns: Sequence[str] = ()
    """Only these; empty for all."""

    def snapshot(self, cluster: Cluster) -> Snapshot:
        """The table, planned now. Raises ``CatalogMissing``, and as ``store_snapshot`` and ``savepoint_snapshot``."""
        from stateflow.query.snapshot import savepoint_snapshot, store_snapshot

        catalog = ControlTopic(cluster, self.app).load()
        if self.as_of is None:
            found = store_snapshot(cluster, catalog, self.store)
        else:
            allowed = AllowedLocations(resolve(self.app, AppOptions()).options.places)
            found = savepoint_snapshot(
                catalog, self.store, self.as_of, location=self.location, allowed=allowed
            )
        return replace(found, table=found.table.only(self.columns)) if self.columns else found


def read_state(
    app: str,
    store: str,
    *,
    brokers: str | None = None,
    client_file: str | Path | None = None,
    as_of: str | None = None,
    location: str | None = None,
    columns: Sequence[str] = (),
    keys: Sequence[object] | None = None,
) -> pa.Table:
    """One store of an application as an Arrow table, by its catalog alone; ``.to_pandas()`` makes a data frame of it.

    The columns are those of ``spark.read.format("stateflow")`` (``docs/spark.md``). Rows come partition by partition,
    each partition consistent with itself. ``as_of`` names a savepoint, where all partitions are of one consistent cut;
    ``location`` is where it is kept, if the application's list does not name a place that the settings here allow.
    ``keys`` reads only these, from the partitions that have them: values of the type that the application declares for
    its keys, or the JSON text that the column shows. ``client_file`` has settings of the Kafka client;
    they and ``brokers`` are otherwise as ``stateflow.toml`` and the environment say.

    Raises ``CatalogMissing`` for an application that never ran there, ``ConfigError`` for a store or a column that it
    does not have, ``SavepointMissing``, ``SetupError`` without pyarrow.
    """
    from stateflow.log.kafka import connect

    request = TableRequest(app=app, store=store, as_of=as_of, location=location, columns=columns)
    cluster = connect(*where(app, brokers, client_file))
    try:
        return read_table(cluster, request, keys)
    finally:
        cluster.close()


def read_table(cluster: Cluster, request: TableRequest, keys: Sequence[object] | None = None) -> pa.Table:
    """``read_state`` on a cluster that is connected."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise SetupError(
            "State is read as an Arrow table, and this Python does not have pyarrow.",
            action=f"{install_command('images')}.",
            missing=["pyarrow"],
        ) from error
    import pyarrow.compute as pc

    if keys is None:
        return _all_rows(cluster, request.snapshot(cluster))
    narrowed = request.snapshot(cluster).of_keys(keys)
    if narrowed.routing_keys is not None:
        return _all_rows(cluster, narrowed)
    wanted = [*dict.fromkeys([*request.columns, "key"])] if request.columns else ()
    rows = _all_rows(cluster, replace(request, columns=wanted).snapshot(cluster))
    shown = [each for key in keys for each in narrowed.table.shown_keys(key)]
    found = rows.filter(pc.is_in(rows["key"], pa.array(shown, rows.schema.field("key").type)))
    return found.select(list(request.columns)) if request.columns else found


def _all_rows(cluster: Cluster, snapshot: Snapshot) -> pa.Table:
    import pyarrow as pa

    batches = [batch for number in snapshot.partitions for batch in snapshot.batches(cluster, number)]
    return pa.Table.from_batches(batches, snapshot.table.arrow_schema)


def where(app: str, brokers: str | None, client_file: str | Path | None) -> tuple[str, dict[str, Any]]:
    """Bootstrap servers and client settings for reading an application's state, from all places that settings have."""
    client = client_settings(None if client_file is None else Path(client_file), app)
    named = client.pop(BROKERS, None)
    return brokers or str(named or resolve(app, AppOptions()).options.brokers), client
