"""Workers of one application must all be placed by warmth, or none: the two kinds would take each other's tasks."""

from __future__ import annotations

from stateflow.catalog.names import members_topic
from stateflow.errors import StillRunning
from stateflow.log.base import Cluster
from stateflow.log.stable_ranges import stable_ranges
from stateflow.runtime.standby.membership_log import MembershipLog
from stateflow.runtime.worker.member_records import MembershipTopic, membership_partition, names_by_id


def read_membership(cluster: Cluster, app: str) -> MembershipTopic | None:
    """What the members of an application last said; None when they never said anything.

    Records of members that are gone stay for a while: compare with ``Cluster.group_members``.
    """
    if members_topic(app) not in cluster.describe([members_topic(app)]):
        return None
    place = membership_partition(app)
    end = stable_ranges(cluster, [place])[place].offset_next
    membership_log = MembershipLog(cluster, app)
    try:
        membership_log.read_to(end)
    finally:
        membership_log.close()
    return membership_log.membership


def refuse_mixed(cluster: Cluster, app: str, *, placed: bool) -> None:
    """Raise ``StillRunning`` when workers of the other kind are members of the application's group."""
    ids = set(cluster.group_members(app))
    if not ids:
        return
    membership = read_membership(cluster, app)
    known = set() if membership is None else ids & names_by_id(membership.members).keys()
    others = ids - known if placed else known
    if others:
        has = "without" if placed else "with"
        raise StillRunning(
            f"{len(others)} worker(s) of {app!r} run {has} standby copies, and this one is to run the other way.",
            action="give all workers the same setting of standby_replicas above 0, or all 0; to change from one to the"
            " other stop them all first.",
            app=app,
            members=sorted(others),
        )
