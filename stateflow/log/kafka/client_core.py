"""The native core beside the Kafka client: librdkafka's public functions, handed to it, and clients made with it.

The core is a plugin of librdkafka: so it is handed each client that is made with it, and nothing is read out of the
Python client's memory.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_void_p

from confluent_kafka import cimpl

from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.settings import Settings
from stateflow.native.library import Core, function_addresses, pointers
from stateflow.native.loading import core

CLIENT_FUNCTIONS = (
    "rd_kafka_conf_interceptor_add_on_new",
    "rd_kafka_queue_new",
    "rd_kafka_queue_destroy",
    "rd_kafka_queue_get_partition",
    "rd_kafka_queue_forward",
    "rd_kafka_queue_poll",
    "rd_kafka_event_type",
    "rd_kafka_event_message_next",
    "rd_kafka_event_error",
    "rd_kafka_event_error_string",
    "rd_kafka_event_topic_partition",
    "rd_kafka_event_destroy",
    "rd_kafka_topic_partition_destroy",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_headers",
    "rd_kafka_header_get_all",
    "rd_kafka_topic_name",
    "rd_kafka_type",
    "rd_kafka_interceptor_add_on_acknowledgement",
    "rd_kafka_topic_new",
    "rd_kafka_topic_destroy",
    "rd_kafka_produceva",
    "rd_kafka_error_destroy",
    "rd_kafka_conf_get",
    "rd_kafka_conf_set_dr_msg_cb",
)
"""librdkafka's public functions, in the order of ``sf_client_functions`` in the core's client.h."""
_PLUGINS = "plugin.library.paths"
_VERSIONS = range(0x02000000, 0x03000000)
"""librdkafka 2: within a major version its public functions and structures stay as they are."""


@functools.cache
def client_core() -> Core | None:
    """The core with the client's library handed to it; None where one of them does not allow it."""
    used = core()
    if used is None:
        return None
    try:
        client = ctypes.CDLL(cimpl.__file__)  # symbols are looked up in what it is linked with, too
        version = int(client.rd_kafka_version())
        found = function_addresses(client, CLIENT_FUNCTIONS)
    except (OSError, AttributeError) as error:
        client_log.info("Kafka's records pass without the native core: the client does not show %s.", error)
        return None
    if version not in _VERSIONS or ";" in str(used.path):
        client_log.info(
            "Kafka's records pass without the native core: the client is of version %#x.", version
        )
        return None
    used.function("sf_client_begin", None, c_void_p)(pointers(found))
    return used


def with_core(used: Core, settings: Settings) -> Settings:
    """The settings of a client that the core is to be handed."""
    plugins = [str(path) for path in (settings.get(_PLUGINS), used.path) if path]
    return {**settings, _PLUGINS: ";".join(plugins)}
