"""Why a client's connections fail. Its requests only say that they were left without an answer."""

from __future__ import annotations

import re
from typing import NamedTuple

from confluent_kafka import KafkaError

CHECK_ALL = "check the address, that the broker is running, and the security settings."
_ACTIONS = {
    KafkaError._AUTHENTICATION: "correct sasl.username, sasl.password and sasl.mechanism in the client settings.",
    KafkaError._SSL: "check security.protocol, and that ssl.ca.location has who signed the broker's certificate.",
    KafkaError._RESOLVE: "check the address; this machine knows no host of that name.",
}
_STATE = re.compile(r" \(after \d+ms in state .*\)$")
"""How long the connection had been in which state, which librdkafka adds, and then perhaps how often it failed."""
_FIRST_CONTACT = re.compile(r"^(\S+)/bootstrap: ")


class FailedConnection(NamedTuple):
    """The address of a broker and why it cannot be spoken to, and what to do about it."""

    text: str
    action: str


def is_of_connection(error: KafkaError) -> bool:
    """Whether a client that tells this of itself tells of the connection to one of its brokers.

    The others may be in order, and this one soon: its password is new, or a proxy answered in its place.
    """
    return error.code() in _ACTIONS or error.code() in (KafkaError._TRANSPORT, KafkaError._BAD_MSG)


def advice(error: KafkaError) -> str:
    """What to do when nobody answers, and this is what was said of it."""
    return _ACTIONS.get(error.code(), CHECK_ALL)


class ConnectionErrors:
    """What a client tells of its connections: its ``error_cb`` is ``heard``, called while it is polled."""

    def __init__(self) -> None:
        self.known: FailedConnection | None = None

    def heard(self, error: KafkaError) -> None:
        """Take what the client tells; that all of its brokers are down is no reason for it.

        It may tell of one failure twice, as what TLS and what the connection ended with: what can be acted on stays.
        """
        action = advice(error)
        is_vaguer = self.known is not None and action == CHECK_ALL != self.known.action
        if error.code() != KafkaError._ALL_BROKERS_DOWN and not is_vaguer:
            self.known = FailedConnection(_FIRST_CONTACT.sub(r"\1: ", _STATE.sub("", error.str())), action)

    def forget(self) -> None:
        """Begin anew: what was told before has nothing to do with what is asked next."""
        self.known = None
