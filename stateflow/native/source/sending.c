/* Records to the Kafka client, without an object per record, and what became of them.
 *
 * Records are handed to the producer that the Python client has made, beside those that Python hands to it. They have
 * no opaque pointer: the Python client's report of a delivery does nothing for such a record. What became of one is told by
 * an interceptor of acknowledgements instead, which librdkafka calls before it reports, in a thread of its own: so it is
 * all known once the Python client has flushed. Kept is the last success of each partition, and its first failure.
 *
 * `sf_sends_forget` begins anew. Should records still be under way then, which happens after a flush that ran out
 * of time, no place is given out until their fate is known: what is told of them must not be taken for what comes after.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

/* RD_KAFKA_VTYPE_… */
enum { ARGUMENT_TOPIC = 2, ARGUMENT_PARTITION = 3, ARGUMENT_VALUE = 4, ARGUMENT_KEY = 5, ARGUMENT_FLAGS = 7, ARGUMENT_TIME = 8 };
#define ARGUMENTS 6
#define COPIED 0x2 /* RD_KAFKA_MSG_F_COPY */

/* RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD: another record of the batch was refused, and has the reason. */
#define FAILED_WITH_ANOTHER (-138)

typedef struct {
    char *topic;
    int32_t partition;
    int32_t failure;   /* the first one with a reason of its own, or else the first; 0 if there was none */
    int64_t successes; /* how many */
    int64_t offset, time_ms; /* of the last one */
} outcome;

/* What librdkafka is given, which may tell of records until the client is gone, and says nowhere that it is: its
 * `on_destroy` comes before the last ones. So these few bytes of each producer are never freed. */
typedef struct {
    atomic_flag is_locked; /* held for some instructions, so it is not worth a mutex */
    sf_sends *open;        /* NULL once nobody wants to know */
} listener;

struct sf_sends {
    void *client;
    listener *heard_by; /* whose lock is that of all below */
    int32_t is_stale;
    int64_t waiting; /* records handed over whose fate is not known */
    outcome *outcomes;
    size_t count, room, last; /* places, memory for as many, and the one that was heard of last */
};

typedef struct {
    char *key, *value;
    ptrdiff_t key_length, value_length;
    int64_t time_ms;
    int32_t partition;
} row;

static _Thread_local int is_producing;

static void lock(listener *own) {
    while (atomic_flag_test_and_set_explicit(&own->is_locked, memory_order_acquire))
        sched_yield();
}

static void unlock(listener *own) { atomic_flag_clear_explicit(&own->is_locked, memory_order_release); }

static void forget_all(sf_sends *own) {
    for (size_t at = 0; at < own->count; at++)
        free(own->outcomes[at].topic);
    own->count = own->last = 0;
}

static outcome *outcome_of(sf_sends *own, const sf_message *of) {
    for (size_t at = own->last; at < own->count + own->last; at++) {
        outcome *found = &own->outcomes[at % own->count];
        if (found->partition == of->partition && strcmp(found->topic, sf_rd.topic_name(of->topic)) == 0) {
            own->last = at % own->count;
            return found;
        }
    }
    return NULL;
}

static void note(sf_sends *own, const sf_message *of) {
    outcome *found = own->is_stale ? NULL : outcome_of(own, of);
    if (--own->waiting == 0)
        own->is_stale = 0;
    if (found != NULL && of->error == 0) {
        found->successes++;
        found->offset = of->offset;
        found->time_ms = sf_rd.message_timestamp(of, NULL);
    } else if (found != NULL && (found->failure == 0 || found->failure == FAILED_WITH_ANOTHER)) {
        found->failure = of->error;
    }
}

/* Called by librdkafka with what became of a record: by its threads, and by one that produces of a record refused. */
static int acknowledged(void *client, sf_message *of, void *by) {
    (void)client;
    listener *own = by;
    if (of->own != NULL || is_producing)
        return 0; /* a record of the Python client's; one that was not taken */
    lock(own);
    if (own->open != NULL)
        note(own->open, of);
    unlock(own);
    return 0;
}

sf_sends *sf_sends_new(void *client) {
    sf_sends *own = calloc(1, sizeof *own);
    listener *by = calloc(1, sizeof *by);
    if (own == NULL || by == NULL || sf_rd.add_acknowledged(client, SF_PLUGIN, acknowledged, by) != 0) {
        free(own);
        free(by);
        return NULL;
    }
    *by = (listener){ATOMIC_FLAG_INIT, own};
    own->client = client;
    own->heard_by = by;
    return own;
}

/* Nothing is sent from now on, and nothing told; to be called once. */
SF_API void sf_sends_close(sf_sends *own) {
    lock(own->heard_by);
    own->heard_by->open = NULL;
    unlock(own->heard_by);
    forget_all(own);
    free(own->outcomes);
    free(own);
}

/* Forget what became of records, and of those that are under way what will become of them. */
SF_API void sf_sends_forget(sf_sends *own) {
    lock(own->heard_by);
    own->is_stale = own->waiting > 0;
    forget_all(own);
    unlock(own->heard_by);
}

/* The number of a partition that records go to from now on; -1 while earlier records are under way, -2 without memory. */
SF_API int64_t sf_sends_place(sf_sends *own, const char *topic, int32_t partition) {
    char *name = malloc(strlen(topic) + 1);
    if (name == NULL)
        return -2;
    lock(own->heard_by);
    int64_t number = own->is_stale ? -1 : (int64_t)own->count;
    if (number >= 0 && own->count == own->room) {
        size_t room = own->room ? 2 * own->room : 8;
        outcome *more = realloc(own->outcomes, room * sizeof *more);
        if (more == NULL) {
            number = -2;
        } else {
            own->outcomes = more;
            own->room = room;
        }
    }
    if (number >= 0)
        own->outcomes[own->count++] = (outcome){.topic = strcpy(name, topic), .partition = partition};
    unlock(own->heard_by);
    if (number < 0)
        free(name);
    return number;
}

/* Of a place: successes, offset and time of the last one, the first failure or 0. */
SF_API void sf_sends_outcome(sf_sends *own, int64_t place, int64_t told[4]) {
    lock(own->heard_by);
    const outcome *of = &own->outcomes[place];
    told[0] = of->successes;
    told[1] = of->offset;
    told[2] = of->time_ms;
    told[3] = of->failure;
    unlock(own->heard_by);
}

/* Hand over rows until one is refused; how many were taken. */
static int64_t produced(sf_sends *own, void *topic, const row *rows, int64_t count) {
    sf_argument arguments[ARGUMENTS] = {
        {ARGUMENT_TOPIC, {.pointer = topic}}, {ARGUMENT_FLAGS, {.integer = COPIED}}, {.kind = ARGUMENT_PARTITION},
        {.kind = ARGUMENT_KEY},               {.kind = ARGUMENT_VALUE},              {.kind = ARGUMENT_TIME}};
    int64_t taken = 0;
    lock(own->heard_by);
    own->waiting += count;
    unlock(own->heard_by);
    is_producing = 1;
    for (; taken < count; taken++) {
        const row *each = &rows[taken];
        arguments[2].of.integer32 = each->partition;
        arguments[3].of.bytes.data = each->key;
        arguments[3].of.bytes.length = (size_t)each->key_length;
        arguments[4].of.bytes.data = each->value;
        arguments[4].of.bytes.length = (size_t)each->value_length;
        arguments[5].of.integer64 = each->time_ms;
        void *refused = sf_rd.produce(own->client, arguments, ARGUMENTS);
        if (refused != NULL) {
            sf_rd.error_destroy(refused);
            break;
        }
    }
    is_producing = 0;
    lock(own->heard_by);
    own->waiting -= count - taken;
    if (own->waiting == 0)
        own->is_stale = 0;
    unlock(own->heard_by);
    return taken;
}

static int bytes_of(py_object *from, char **data, ptrdiff_t *length) {
    if (from == sf_py.none) {
        *data = NULL;
        *length = 0;
        return 0;
    }
    return sf_py.bytes_view(from, data, length);
}

/* Rows of columns: lists, or what all of them have in common where a list is None. -1 with an error set. */
static int gathered(row *rows, ptrdiff_t count, py_object *const columns[4], int32_t partition, int64_t time_ms) {
    int overflow = 0;
    for (ptrdiff_t at = 0; at < count; at++) {
        row *each = &rows[at];
        if (bytes_of(sf_py.list_item(columns[0], at), &each->key, &each->key_length) != 0 ||
            bytes_of(sf_py.list_item(columns[1], at), &each->value, &each->value_length) != 0)
            return -1;
        each->partition = partition;
        each->time_ms = time_ms;
        if (columns[2] != sf_py.none)
            each->partition = (int32_t)sf_py.integer_value(sf_py.list_item(columns[2], at), &overflow);
        if (columns[3] != sf_py.none)
            each->time_ms = sf_py.integer_value(sf_py.list_item(columns[3], at), &overflow);
    }
    return sf_py.error_is_set() == NULL ? 0 : -1;
}

/* Send records to the places of a topic: keys and values, partitions, times; of the last two what all have if they are None.
 *
 * Others may run meanwhile, and the lists must not change. Returns how many were taken, in their order: fewer where one was
 * refused. -1 with an error set, and then nothing was sent.
 */
SF_API int64_t sf_py_sends_send(sf_sends *own, const char *topic, py_object *keys, py_object *values, py_object *partitions,
                                py_object *times, int32_t partition, int64_t time_ms) {
    ptrdiff_t count = sf_py.list_size(keys);
    py_object *const columns[] = {keys, values, partitions, times};
    row *rows = malloc((size_t)(count ? count : 1) * sizeof *rows);
    if (rows == NULL) {
        sf_py.no_memory();
        return -1;
    }
    int64_t taken = -1;
    if (gathered(rows, count, columns, partition, time_ms) == 0) {
        void *held = sf_py.let_others_run();
        void *handle = sf_rd.topic_new(own->client, topic, NULL);
        taken = handle == NULL ? 0 : produced(own, handle, rows, count);
        if (handle != NULL)
            sf_rd.topic_destroy(handle);
        sf_py.run_again(held);
    }
    free(rows);
    return taken;
}
