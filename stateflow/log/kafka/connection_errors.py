"""Why a client's connections fail. Its requests only say that they were left without an answer."""

from __future__ import annotations

import re
from typing import NamedTuple

from confluent_kafka import KafkaError

CHECK_ALL = "check the address, that the broker is running, and the security settings."
_ACTIONS = {
    KafkaError._AUTHENTICATION: "correct sasl.username, sasl.password and sasl.mechanism in the client settings.",
    KafkaError._SSL: "check security.protocol, and that ssl.ca.location names the CA of the broker's certificate.",
    KafkaError._RESOLVE: "check the address; this machine knows no host of that name.",
}
_STATE = re.compile(r" \(after \d+ms in state .*\)$")
"""What librdkafka adds: how long the connection had been in which state, and how often it failed the same way."""
_FIRST_CONTACT = re.compile(r"^(\S+)/bootstrap: ")


class FailedConnection(NamedTuple):
    """The address of a broker and why it cannot be spoken to, and what to do about it."""

    text: str
    action: str


def is_of_connection(error: KafkaError) -> bool:
    """Whether an event of a client is about the connection to one broker.

    Connections to others may work, and this one may soon: a password was changed, or a proxy answered for the broker.
    """
    return error.code() in _ACTIONS or error.code() in (KafkaError._TRANSPORT, KafkaError._BAD_MSG)


def advice(error: KafkaError) -> str:
    """What to do about an error for which requests got no answer."""
    return _ACTIONS.get(error.code(), CHECK_ALL)


class ConnectionErrors:
    """What a client tells of its connections: its ``error_cb`` is ``heard``, called while it is polled."""

    def __init__(self) -> None:
        self.known: FailedConnection | None = None

    def heard(self, error: KafkaError) -> None:
        """Take an event of the client. That all of its brokers are down does not say why.

        One failure may be told twice, by TLS and by the connection: the one that says what to do is kept.
        """
        action = advice(error)
        is_vaguer = self.known is not None and action == CHECK_ALL != self.known.action
        if error.code() != KafkaError._ALL_BROKERS_DOWN and not is_vaguer:
            self.known = FailedConnection(_FIRST_CONTACT.sub(r"\1: ", _STATE.sub("", error.str())), action)

    def forget(self) -> None:
        """Begin anew: what was told before has nothing to do with what is asked next."""
        self.known = None
