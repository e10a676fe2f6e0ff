/* Counting: how often each key was named since the last commit, beside what it was counted to before.
 *
 * `added` is a table of newest.c with the keys of one epoch. `young` and `old` are two generations of totals that are on
 * disk, 8 bytes each. A number lies where a value does, as the machine has it; given out it is big-endian, as Kafka's
 * LongSerializer writes it.
 */
#include <string.h>

#include "newest.h"

typedef struct {
    int64_t times; /* since the last commit */
    int64_t base;  /* on disk */
    int64_t is_known; /* the base is */
} tallied;

static tallied tallied_of(const sf_entry *of) {
    tallied own;
    memcpy(&own, of->key + of->key_length, sizeof own);
    return own;
}

static void keep(const sf_entry *of, const tallied *own) { memcpy(of->key + of->key_length, own, sizeof *own); }

static const sf_entry *in_order(const sf_newest *added, uint32_t row) {
    return &added->entries[added->order[row].index];
}

static int add_one(sf_newest *added, const sf_named *key) {
    sf_entry *own = sf_newest_hashed(added, key->hash, key->data, (uint32_t)key->length, sizeof(tallied));
    if (own == NULL) {
        sf_py.no_memory();
        return -1;
    }
    tallied now = {0, 0, 0};
    if (own->value_length == SF_NO_VALUE)
        own->value_length = sizeof now;
    else
        now = tallied_of(own);
    now.times++;
    keep(own, &now);
    return 0;
}

/* One more for each key of a list. Told: how many of them are new, and the bytes of all. 0, or -1 with an error set. */
SF_API int64_t sf_py_tally_add(sf_newest *added, py_object *keys, int64_t told[2]) {
    ptrdiff_t rows = sf_py.list_size(keys);
    uint32_t before = added->count;
    sf_named some[AHEAD];
    told[0] = told[1] = 0;
    for (ptrdiff_t first = 0; first < rows; first += AHEAD) {
        ptrdiff_t count = rows - first < AHEAD ? rows - first : AHEAD;
        for (ptrdiff_t at = 0; at < count; at++) {
            sf_named *key = &some[at];
            if (sf_py.bytes_view(sf_py.list_item(keys, first + at), &key->data, &key->length) != 0)
                return -1;
            key->hash = sf_newest_hash(added, key->data, (uint32_t)key->length);
            told[1] += key->length;
        }
        sf_newest_fetch_ahead(added, some, count);
        for (ptrdiff_t at = 0; at < count; at++)
            if (add_one(added, &some[at]) != 0)
                return -1;
    }
    told[0] = added->count - before;
    return rows < 0 ? -1 : 0;
}

/* Look for the totals of the keys in both generations; how many are in neither. */
SF_API int64_t sf_tally_look(sf_newest *added, const sf_newest *young, const sf_newest *old) {
    int64_t unknown = 0;
    for (uint32_t index = 0; index < added->count; index++) {
        sf_entry *own = &added->entries[index];
        tallied now = tallied_of(own);
        if (now.is_known)
            continue;
        const sf_entry *before = sf_newest_find(young, own->key, own->key_length);
        if (before == NULL)
            before = sf_newest_find(old, own->key, own->key_length);
        if (before == NULL) {
            unknown++;
            continue;
        }
        memcpy(&now.base, before->key + before->key_length, sizeof now.base);
        now.is_known = 1;
        keep(own, &now);
    }
    return unknown;
}

/* A new list of the keys whose totals are not known, in order; after sf_newest_sort. */
SF_API py_object *sf_py_tally_unknown(const sf_newest *added, int64_t count) {
    py_object *keys = sf_py.list_new((ptrdiff_t)count);
    ptrdiff_t at = 0;
    for (uint32_t row = 0; keys != NULL && at < count; row++) {
        const sf_entry *own = in_order(added, row);
        if (tallied_of(own).is_known)
            continue;
        py_object *key = sf_py.bytes_new((const char *)own->key, own->key_length);
        if (key == NULL) {
            sf_py.drop(keys);
            return NULL;
        }
        sf_py.list_set(keys, at++, key);
    }
    return keys;
}

/* What is on disk of the keys that sf_py_tally_unknown has given, None for nothing; 1 if one is no number of 8 bytes. */
SF_API int64_t sf_py_tally_learn(sf_newest *added, py_object *values) {
    ptrdiff_t count = sf_py.list_size(values), at = 0;
    for (uint32_t row = 0; at < count; row++) {
        const sf_entry *own = in_order(added, row);
        tallied now = tallied_of(own);
        if (now.is_known)
            continue;
        py_object *value = sf_py.list_item(values, at++);
        if (value != sf_py.none) {
            char *data;
            ptrdiff_t length;
            uint64_t number;
            if (sf_py.bytes_view(value, &data, &length) != 0)
                return -1;
            if (length != sizeof number)
                return 1;
            memcpy(&number, data, sizeof number);
            now.base = (int64_t)sf_big_endian(number); /* the same both ways */
        }
        now.is_known = 1;
        keep(own, &now);
    }
    return count < 0 ? -1 : 0;
}

/* How many keys have a total that 8 bytes cannot hold. */
SF_API int64_t sf_tally_too_large(const sf_newest *added) {
    int64_t found = 0, sum;
    for (uint32_t index = 0; index < added->count; index++) {
        tallied now = tallied_of(&added->entries[index]);
        found += __builtin_add_overflow(now.base, now.times, &sum);
    }
    return found;
}

/* A new tuple of two lists, keys and totals in 8 bytes, in order; after sf_newest_sort, when all totals are known. */
SF_API py_object *sf_py_tally_rows(const sf_newest *added) {
    py_object *columns = sf_two_lists(added->count);
    if (columns == NULL)
        return NULL;
    py_object *lists[2] = {sf_py.tuple_item(columns, 0), sf_py.tuple_item(columns, 1)};
    for (uint32_t row = 0; row < added->count; row++) {
        const sf_entry *own = in_order(added, row);
        tallied now = tallied_of(own);
        uint64_t total = sf_big_endian((uint64_t)(now.base + now.times));
        if (sf_set_row(lists, row, own, sf_py.bytes_new((const char *)&total, sizeof total)) != 0) {
            sf_py.drop(columns);
            return NULL;
        }
    }
    return columns;
}

/* A new tuple of two lists, keys and how often each was named, in the order in which keys came. */
SF_API py_object *sf_py_tally_times(const sf_newest *added) {
    py_object *columns = sf_two_lists(added->count);
    if (columns == NULL)
        return NULL;
    py_object *lists[2] = {sf_py.tuple_item(columns, 0), sf_py.tuple_item(columns, 1)};
    for (uint32_t row = 0; row < added->count; row++) {
        const sf_entry *own = &added->entries[row];
        if (sf_set_row(lists, row, own, sf_py.integer_new(tallied_of(own).times)) != 0) {
            sf_py.drop(columns);
            return NULL;
        }
    }
    return columns;
}

/* Remember the totals, which are on disk now, until the table takes `bytes_max`; how many found no room, or -1. */
SF_API int64_t sf_tally_remember(const sf_newest *added, sf_newest *young, int64_t bytes_max) {
    for (uint32_t index = 0; index < added->count; index++) {
        const sf_entry *own = &added->entries[index];
        tallied now = tallied_of(own);
        int64_t total = now.base + now.times;
        if (sf_newest_bytes(young) > bytes_max)
            return added->count - index;
        sf_entry *kept = sf_newest_entry(young, own->key, own->key_length, sizeof total);
        if (kept == NULL)
            return -1;
        kept->value_length = sizeof total;
        memcpy(kept->key + kept->key_length, &total, sizeof total);
    }
    return 0;
}
