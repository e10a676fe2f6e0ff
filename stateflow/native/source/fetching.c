/* Records from the Kafka client, without an object per record: librdkafka's own queues, by its public functions.
 *
 * A stream is a queue of our own, to which the queues of partitions are forwarded: what arrives there is records, and
 * the errors and ends of partitions. They are taken as events, which serves no callback: the Python client's would
 * abort the process in a call that is not its own. All else that makes callbacks (errors of the client, its log,
 * statistics, the group) stays in the queues that the Python client polls.
 */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "rows.h"

/* RD_KAFKA_EVENT_FETCH and RD_KAFKA_EVENT_ERROR */
#define EVENT_FETCH 0x2
#define EVENT_ERROR 0x8

#define rd sf_rd
typedef sf_message message;
typedef sf_place place;

typedef struct {
    void *topic;
    int32_t partition;
    int32_t in_order; /* offsets ascend strictly */
    int64_t rows;
    int64_t first, last; /* numbers of its messages in the stream */
} group;

typedef struct {
    void *client;
    void *queue;
    void **events;
    const message **messages; /* of each event; NULL for an error */
    int64_t *next; /* of each message, the next one of its group; -1 at its end */
    group *groups;
    int64_t rows_max, count, groups_count;
} stream;

SF_API void sf_stream_release(stream *own) {
    for (int64_t row = 0; row < own->count; row++)
        rd.event_destroy(own->events[row]);
    own->count = own->groups_count = 0;
}

/* Close a stream whose partitions were let go of. */
SF_API void sf_stream_close(stream *own) {
    sf_stream_release(own);
    if (own->queue != NULL)
        rd.queue_destroy(own->queue);
    free(own->events);
    free(own->messages);
    free(own->next);
    free(own->groups);
    free(own);
}

SF_API stream *sf_stream_open(void *client, int64_t rows_max) {
    stream *own = calloc(1, sizeof *own);
    if (own == NULL)
        return NULL;
    own->client = client;
    own->rows_max = rows_max;
    own->events = malloc((size_t)rows_max * sizeof *own->events);
    own->messages = malloc((size_t)rows_max * sizeof *own->messages);
    own->next = malloc((size_t)rows_max * sizeof *own->next);
    own->groups = malloc((size_t)rows_max * sizeof *own->groups);
    own->queue = rd.queue_new(client);
    if (own->events == NULL || own->messages == NULL || own->next == NULL || own->groups == NULL || own->queue == NULL) {
        sf_stream_close(own);
        return NULL;
    }
    return own;
}

/* Have a partition's records come to the stream, or to the client again; 0, or -1 when the client has no queue. */
SF_API int64_t sf_stream_follow(stream *own, const char *topic, int32_t partition, int32_t follows) {
    void *queue = rd.queue_of_partition(own->client, topic, partition);
    if (queue == NULL)
        return -1;
    rd.queue_forward(queue, follows ? own->queue : NULL);
    rd.queue_destroy(queue);
    return 0;
}

static group *group_of(stream *own, const message *of, group *last) {
    if (last != NULL && last->topic == of->topic && last->partition == of->partition)
        return last;
    for (int64_t index = 0; index < own->groups_count; index++)
        if (own->groups[index].topic == of->topic && own->groups[index].partition == of->partition)
            return &own->groups[index];
    group *fresh = &own->groups[own->groups_count++];
    *fresh = (group){of->topic, of->partition, 1, 0, -1, -1};
    return fresh;
}

/* What is in a queue, sorted out into groups; waits at most so long for something to come. */
static int64_t gather(stream *own, void *queue, int32_t timeout_ms, int64_t rows_max) {
    group *last = NULL;
    if (rows_max > own->rows_max)
        rows_max = own->rows_max;
    while (own->count < rows_max) {
        void *event = rd.queue_poll(queue, own->count ? 0 : timeout_ms);
        if (event == NULL)
            break;
        int type = rd.event_type(event);
        const message *found = type == EVENT_FETCH ? rd.event_message(event) : NULL;
        if (found == NULL && type != EVENT_ERROR) {
            rd.event_destroy(event);
            continue;
        }
        int64_t row = own->count++;
        own->events[row] = event;
        own->messages[row] = found;
        own->next[row] = -1;
        if (found == NULL)
            continue;
        last = group_of(own, found, last);
        if (last->rows++ == 0) {
            last->first = row;
        } else {
            own->next[last->last] = row;
            last->in_order &= own->messages[last->last]->offset < found->offset;
        }
        last->last = row;
    }
    return own->count;
}

/* Bring what is there, waiting at most so long for something to come; the number of records and errors.
 *
 * Records are sorted out into groups, one per partition, in their order; errors belong to none. They stay until
 * sf_stream_release, which must come before the next one.
 */
SF_API int64_t sf_stream_fetch(stream *own, int32_t timeout_ms, int64_t rows_max) {
    return gather(own, own->queue, timeout_ms, rows_max);
}

/* The same with what is in the queue of one partition, which is not forwarded, without waiting. */
SF_API int64_t sf_stream_pull(stream *own, const char *topic, int32_t partition, int64_t rows_max) {
    void *queue = rd.queue_of_partition(own->client, topic, partition);
    if (queue == NULL)
        return 0;
    int64_t found = gather(own, queue, 0, rows_max);
    rd.queue_destroy(queue);
    return found;
}

SF_API int64_t sf_stream_groups(const stream *own) { return own->groups_count; }

/* Of a group: partition, rows, first offset, last offset, whether the offsets ascend; returns its topic. */
SF_API const char *sf_stream_group(const stream *own, int64_t index, int64_t told[5]) {
    const group *of = &own->groups[index];
    told[0] = of->partition;
    told[1] = of->rows;
    told[2] = own->messages[of->first]->offset;
    told[3] = own->messages[of->last]->offset;
    told[4] = of->in_order;
    return rd.topic_name(of->topic);
}

/* Put a new item into a tuple or list, which takes it over; -1 when it could not be made. */
static int filled(int (*set)(py_object *, ptrdiff_t, py_object *), py_object *into, ptrdiff_t at, py_object *item) {
    return item == NULL ? -1 : set(into, at, item);
}

static py_object *text_or_none(const char *text) {
    return text == NULL ? sf_bytes_or_none(NULL, SF_NO_VALUE) : sf_py.text_new(text);
}

#define ERROR_FIELDS 6

/* The first error from `row` on: a new tuple of its number, code, text, topic or None, partition, offset; or None. */
SF_API py_object *sf_py_stream_error(const stream *own, int64_t row) {
    while (row < own->count && own->messages[row] != NULL)
        row++;
    if (row >= own->count)
        return sf_bytes_or_none(NULL, SF_NO_VALUE);
    void *event = own->events[row];
    place *at = rd.event_place(event);
    py_object *told = sf_py.tuple_new(ERROR_FIELDS);
    if (told != NULL && (filled(sf_py.tuple_set, told, 0, sf_py.integer_new(row)) != 0 ||
                         filled(sf_py.tuple_set, told, 1, sf_py.integer_new(rd.event_error(event))) != 0 ||
                         filled(sf_py.tuple_set, told, 2, text_or_none(rd.event_error_text(event))) != 0 ||
                         filled(sf_py.tuple_set, told, 3, text_or_none(at == NULL ? NULL : at->topic)) != 0 ||
                         filled(sf_py.tuple_set, told, 4, sf_py.integer_new(at == NULL ? -1 : at->partition)) != 0 ||
                         filled(sf_py.tuple_set, told, 5, sf_py.integer_new(at == NULL ? -1 : at->offset)) != 0)) {
        sf_py.drop(told);
        told = NULL;
    }
    if (at != NULL)
        rd.place_destroy(at);
    return told;
}

/* Keep the newest value of each key of a group's records before `offset_next`.
 *
 * Told: how many records that were, and the bytes of their keys and values. 0, or -1 when memory is used up.
 */
SF_API int64_t sf_stream_newest(const stream *own, int64_t index, sf_newest *newest, int64_t offset_next, int64_t told[2]) {
    told[0] = told[1] = 0;
    for (int64_t row = own->groups[index].first; row >= 0; row = own->next[row]) {
        const message *each = own->messages[row];
        if (each->offset >= offset_next)
            break;
        told[0]++;
        told[1] += (int64_t)(each->key_length + each->length);
        if (each->key == NULL)
            continue;
        int64_t length = each->payload == NULL ? SF_NO_VALUE : (int64_t)each->length;
        if (sf_newest_put(newest, each->key, (uint32_t)each->key_length, each->payload, length) != 0)
            return -1;
    }
    return 0;
}

/* The same with their timestamps, as rows.c has them. Told beside: how many of them have headers, which are not kept. */
SF_API int64_t sf_stream_rows(const stream *own, int64_t index, sf_newest *rows, int64_t offset_next, int64_t told[3]) {
    const message *found[AHEAD];
    sf_named keys[AHEAD];
    int64_t row = own->groups[index].first;
    told[0] = told[1] = told[2] = 0;
    while (row >= 0 && own->messages[row]->offset < offset_next) {
        ptrdiff_t count = 0;
        for (; count < AHEAD && row >= 0 && own->messages[row]->offset < offset_next; row = own->next[row]) {
            const message *each = own->messages[row];
            told[0]++;
            told[1] += (int64_t)(each->key_length + each->length);
            if (each->key == NULL)
                continue;
            found[count] = each;
            keys[count] = (sf_named){each->key, (ptrdiff_t)each->key_length, 0};
            keys[count].hash = sf_newest_hash(rows, each->key, (uint32_t)each->key_length);
            count++;
        }
        sf_newest_fetch_ahead(rows, keys, count);
        for (ptrdiff_t at = 0; at < count; at++) {
            void *headers = NULL;
            told[2] += rd.message_headers(found[at], &headers) == 0;
            int64_t length = found[at]->payload == NULL ? SF_NO_VALUE : (int64_t)found[at]->length;
            int64_t time_ms = rd.message_timestamp(found[at], NULL);
            if (sf_rows_put(rows, &keys[at], found[at]->payload, length, time_ms) != 0)
                return -1;
        }
    }
    return 0;
}

/* A message's headers as a new tuple of (name, bytes or None); `nothing`, with another reference, if it has none. */
static py_object *headers_of(const message *of, py_object *nothing, int *has_any) {
    void *headers = NULL;
    const char *name;
    const void *value;
    size_t size, count = 0;
    if (rd.message_headers(of, &headers) == 0)
        while (rd.header_at(headers, count, &name, &value, &size) == 0)
            count++;
    if (count == 0) {
        sf_py.take(nothing);
        return nothing;
    }
    *has_any = 1;
    py_object *all = sf_py.tuple_new((ptrdiff_t)count);
    for (size_t at = 0; all != NULL && at < count; at++) {
        rd.header_at(headers, at, &name, &value, &size);
        py_object *pair = sf_py.tuple_new(2);
        int64_t length = value == NULL ? SF_NO_VALUE : (int64_t)size;
        if (pair == NULL || filled(sf_py.tuple_set, pair, 0, sf_py.text_new(name)) != 0 ||
            filled(sf_py.tuple_set, pair, 1, sf_bytes_or_none(value, length)) != 0) {
            if (pair != NULL)
                sf_py.drop(pair);
            sf_py.drop(all);
            return NULL;
        }
        sf_py.tuple_set(all, (ptrdiff_t)at, pair);
    }
    return all;
}

#define COLUMNS 5

/* A group's columns as a new tuple of lists: offsets, timestamps, keys, values, headers (None when there are none); and
 * behind them the bytes of keys and values.
 *
 * `nothing` stands in the headers for a record without any.
 */
SF_API py_object *sf_py_stream_columns(const stream *own, int64_t index, py_object *nothing) {
    const group *of = &own->groups[index];
    py_object *columns = sf_py.tuple_new(COLUMNS + 1), *lists[COLUMNS];
    if (columns == NULL)
        return NULL;
    for (int at = 0; at < COLUMNS; at++) {
        lists[at] = sf_py.list_new((ptrdiff_t)of->rows);
        if (lists[at] == NULL || sf_py.tuple_set(columns, at, lists[at]) != 0)
            goto failed;
    }
    int has_headers = 0;
    ptrdiff_t at = 0;
    int64_t size = 0;
    for (int64_t row = of->first; row >= 0; row = own->next[row], at++) {
        const message *each = own->messages[row];
        size += (int64_t)(each->key_length + each->length);
        int64_t key_length = each->key == NULL ? SF_NO_VALUE : (int64_t)each->key_length;
        int64_t length = each->payload == NULL ? SF_NO_VALUE : (int64_t)each->length;
        if (filled(sf_py.list_set, lists[0], at, sf_py.integer_new(each->offset)) != 0 ||
            filled(sf_py.list_set, lists[1], at, sf_py.integer_new(rd.message_timestamp(each, NULL))) != 0 ||
            filled(sf_py.list_set, lists[2], at, sf_bytes_or_none(each->key, key_length)) != 0 ||
            filled(sf_py.list_set, lists[3], at, sf_bytes_or_none(each->payload, length)) != 0 ||
            filled(sf_py.list_set, lists[4], at, headers_of(each, nothing, &has_headers)) != 0)
            goto failed;
    }
    if (filled(sf_py.tuple_set, columns, COLUMNS, sf_py.integer_new(size)) != 0)
        goto failed;
    if (!has_headers) {
        sf_py.take(sf_py.none);
        sf_py.tuple_set(columns, COLUMNS - 1, sf_py.none);
    }
    return columns;
failed:
    sf_py.drop(columns);
    return NULL;
}
