/* The Kafka client as the core knows it: librdkafka's public functions and structures; client.c. */
#ifndef STATEFLOW_CLIENT_H
#define STATEFLOW_CLIENT_H

#include "core.h"

/* rd_kafka_message_t of librdkafka's public ABI. */
typedef struct {
    int error;
    void *topic;
    int32_t partition;
    void *payload;
    size_t length;
    void *key;
    size_t key_length;
    int64_t offset;
    void *own;
} sf_message;

/* The beginning of rd_kafka_topic_partition_t. */
typedef struct {
    const char *topic;
    int32_t partition;
    int64_t offset;
} sf_place;

/* rd_kafka_vu_t: one argument of rd_kafka_produceva. */
typedef struct {
    int kind;
    union {
        const void *pointer;
        int integer;
        int32_t integer32;
        int64_t integer64;
        struct {
            const void *data;
            size_t length;
        } bytes;
        char padding[64];
    } of;
} sf_argument;

typedef int (*sf_client_made_f)(void *client, const void *settings, void *own, char *error, size_t error_size);
typedef void (*sf_reported_f)(void *client, const sf_message *of, void *own);
typedef int (*sf_acknowledged_f)(void *client, sf_message *of, void *own);

/* librdkafka's functions, in the order of CLIENT_FUNCTIONS in ../../log/kafka/client_core.py. */
typedef struct {
    int (*add_client_made)(void *settings, const char *name, sf_client_made_f made, void *own);
    void *(*queue_new)(void *client);
    void (*queue_destroy)(void *queue);
    void *(*queue_of_partition)(void *client, const char *topic, int32_t partition);
    void (*queue_forward)(void *from, void *to);
    void *(*queue_poll)(void *queue, int timeout_ms);
    int (*event_type)(const void *event);
    const sf_message *(*event_message)(void *event);
    int (*event_error)(void *event);
    const char *(*event_error_text)(void *event);
    sf_place *(*event_place)(void *event);
    void (*event_destroy)(void *event);
    void (*place_destroy)(sf_place *);
    int64_t (*message_timestamp)(const sf_message *, int *kind);
    int (*message_headers)(const sf_message *, void **headers);
    int (*header_at)(const void *headers, size_t index, const char **name, const void **value, size_t *size);
    const char *(*topic_name)(const void *topic);
    int (*client_type)(const void *client);
    int (*add_acknowledged)(void *client, const char *name, sf_acknowledged_f acknowledged, void *own);
    void *(*topic_new)(void *client, const char *name, void *settings);
    void (*topic_destroy)(void *topic);
    void *(*produce)(void *client, const sf_argument *arguments, size_t count);
    void (*error_destroy)(void *error);
    int (*setting)(const void *settings, const char *name, char *value, size_t *size);
    void (*set_reported)(void *settings, sf_reported_f reported);
} sf_client_functions;

extern sf_client_functions sf_rd;

/* The name that librdkafka knows the core by. */
#define SF_PLUGIN "stateflow"

/* What is sent through a producer that is being made; NULL when memory is used up. sending.c */
typedef struct sf_sends sf_sends;
sf_sends *sf_sends_new(void *client);

/* Have the core take the reports of a producer that is being made with these settings. reports.c */
void sf_reports_take(void *settings);

#endif
