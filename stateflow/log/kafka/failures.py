"""From librdkafka's errors to ours."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from stateflow.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ConfigError,
    MembershipLost,
    ProducerFenced,
    StateflowError,
    TopicMissing,
    TransactionAborted,
)
from stateflow.log.kafka.connection_errors import FailedConnection, advice
from stateflow.redaction import HIDDEN, is_secret

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError._NOENT,  # “no leaders found”, for offsets of a topic that is not there
}
_MEMBERSHIP = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
}
_UNREACHABLE = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY,  # the client has let go of a broker that metadata no longer names, and of what waited for it
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._AUTHENTICATION,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}


_FOR_GOOD = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What the broker refuses each time: doing the same again would only meet it again."""


def error_of(raised: KafkaException) -> KafkaError:
    """The client library's error inside its exception."""
    error = raised.args[0]
    assert isinstance(error, KafkaError), f"unexpected exception from the Kafka client: {raised!r}"
    return error


def is_passing(error: KafkaError) -> bool:
    """Whether waiting may help: the cluster is out of reach or busy choosing a leader or coordinator."""
    return bool(error.code() in _UNREACHABLE or (error.retriable() and not error.fatal()))


def is_fenced(error: KafkaError) -> bool:
    """Whether a newer producer took over, or the broker ended this one's transaction."""
    return error.code() in _FENCED


def ended_elsewhere(failure: StateflowError) -> KafkaError | None:
    """Why a transaction could not be ended, if it is that another request had ended it: a late EndTxn did."""
    cause = failure.__cause__
    error = error_of(cause) if isinstance(cause, KafkaException) else None
    return error if error is not None and error.code() == KafkaError.INVALID_TXN_STATE else None


def is_missing(error: KafkaError) -> bool:
    """Whether a topic or partition does not exist."""
    return error.code() in _MISSING


def is_membership(error: KafkaError) -> bool:
    """Whether the group went on without this member."""
    return error.code() in _MEMBERSHIP


def refused_settings(error: KafkaError, settings: Mapping[str, object]) -> ConfigError:
    """Our error for client settings that the client library does not take; secrets are kept out of it."""
    said = str(error.str())
    for name, value in settings.items():
        if value and is_secret(name):
            said = said.replace(str(value), HIDDEN)
    return ConfigError(
        f"The Kafka client refuses its settings: {said}.",
        action="correct the client settings ([client] in stateflow.toml, STATEFLOW_CLIENT__… in the environment, or"
        " the application's code); their names are librdkafka's.",
    )


def replaced(error: KafkaError, group: str, taken_name: str | None = None) -> MembershipLost:
    """Our error for a member that the group has put out, if so because another process has taken its name."""
    said = f"{error.name()}: {error.str()}"
    why = said if taken_name is None else f"another process has its name, {taken_name!r}"
    return MembershipLost(
        f"This member of group {group!r} was replaced ({why}).",
        action="stop this instance, or give each worker a member name of its own.",
        group=group,
        code=error.name(),
    )


def no_answer(bootstrap: str, doing: str) -> BrokerUnreachable:
    """Our error for brokers that leave something without an answer for too long."""
    return BrokerUnreachable(
        f"No answer from Kafka at {bootstrap} while {doing}.",
        action="check that the brokers are running and can be reached from here.",
        bootstrap=bootstrap,
    )


def cannot_go_on(error: KafkaError, transactional_id: str) -> StateflowError:
    """Our error for a producer that brokers let do nothing any more."""
    if error.code() == KafkaError.INVALID_TXN_STATE:
        return aborted(error, "ending it: a late request had ended it before", transactional_id)
    return ProducerFenced(
        f"The producer {transactional_id!r} cannot go on ({error.name()}: {error.str()}): a newer one took its place,"
        " or its transaction ran past its timeout.",
        action="stop this instance; the newer one goes on from the last commit.",
        transactional_id=transactional_id,
    )


def aborted(error: KafkaError, doing: str, transactional_id: str | None) -> StateflowError:
    """Our error for a transaction that had to be aborted: to be tried again, unless it would fail each time.

    Its field ``passing`` tells that it was for lack of an answer: the transaction itself may be in order.
    """
    said = f"The transaction was aborted while {doing} ({error.name()}: {error.str()})."
    if error.code() not in _FOR_GOOD:
        return TransactionAborted(
            said,
            action="read the input again from the committed offsets.",
            transactional_id=transactional_id,
            code=error.name(),
            passing=is_passing(error),
        )
    if error.code() == KafkaError.INVALID_TIMESTAMP:
        return BrokerRefused(
            said,
            action="nothing of it is visible. A record's time is further from the broker's clock than the topic allows"
            " (message.timestamp.after.max.ms, an hour since Kafka 4, and message.timestamp.before.max.ms). If such"
            " times are right, `kafka-configs.sh --bootstrap-server … --alter --topic TOPIC --add-config"
            f" message.timestamp.after.max.ms={(1 << 63) - 1}`, then start again; if not, keep them out with"
            " max_ahead=… of the source.",
            transactional_id=transactional_id,
            code=error.name(),
        )
    return BrokerRefused(
        said,
        action="nothing of it is visible; what was refused would be refused again. For a record that is too large raise"
        " the topic's max.message.bytes or make the record smaller; otherwise check the permissions of the client and"
        " the topic's policy.",
        transactional_id=transactional_id,
        code=error.name(),
    )


def typed(
    error: KafkaError, doing: str, bootstrap: str, failed: FailedConnection | None = None, **fields: object
) -> StateflowError:
    """Our error for a failure while ``doing`` something (“committing offsets of group 'x'”).

    ``failed`` is a connection that failed meanwhile: the reason, unless a broker gave another one.
    """
    said = f"{error.name()}: {error.str()}"
    if is_fenced(error):
        return ProducerFenced(
            f"This producer was fenced while {doing} ({said}): a newer one took its place, or its transaction"
            " ran past its timeout.",
            action="stop this instance; the newer one goes on from the last commit.",
            **fields,
        )
    if is_missing(error):
        return TopicMissing(
            f"A topic or partition does not exist, noticed while {doing} ({said}).",
            action="create it, or check its name and partition count in the application.",
            **fields,
        )
    if is_membership(error):
        return MembershipLost(
            f"The consumer group went on without this member, noticed while {doing} ({said}).",
            action="drop what was not committed; the partitions' present owner reads it again.",
            code=error.name(),
            **fields,
        )
    if is_passing(error):
        is_brokers_word = error.code() > 0
        why, action = (said, advice(error)) if failed is None or is_brokers_word else failed
        return BrokerUnreachable(
            f"No answer from Kafka at {bootstrap} while {doing} ({why}).",
            action=action,
            bootstrap=bootstrap,
            **fields,
        )
    return BrokerRefused(
        f"Kafka at {bootstrap} refused {doing} ({said}).",
        action="check the permissions of the client, the topic's policy, and the setting named above.",
        code=error.name(),
        **fields,
    )
