/* Records of a changelog on their way to another: the newest one of each key with its time, divided into slices.
 *
 * A table of newest.c whose values begin with the record's timestamp. What is sent from job to job is MessagePack, the
 * same as in scale/state_move.py and scale/audit_slices.py, so either end may be plain Python. Headers are not kept: who
 * meets some is told, and does it in Python.
 */
#include <stdlib.h>
#include <string.h>

#include "rows.h"

static uint32_t crc_table[256];

static void begin_crc(void) {
    if (crc_table[1])
        return;
    for (uint32_t byte = 255; byte; byte--) { /* the first entry is 0; that of 1 comes last */
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
        crc_table[byte] = value;
    }
}

/* As zlib has it. */
static uint32_t crc32_of(const uint8_t *data, uint32_t length) {
    uint32_t crc = 0xffffffffu;
    for (uint32_t at = 0; at < length; at++)
        crc = crc_table[(crc ^ data[at]) & 0xff] ^ crc >> 8;
    return ~crc;
}

int sf_rows_put(sf_newest *rows, const sf_named *key, const void *value, int64_t value_length, int64_t time_ms) {
    if (rows->ignored_length && key->length >= (ptrdiff_t)rows->ignored_length &&
        memcmp(key->data, rows->ignored, rows->ignored_length) == 0)
        return 0;
    uint32_t room = value_length < 0 ? 0 : TIME_BYTES + (uint32_t)value_length;
    sf_entry *own = sf_newest_hashed(rows, key->hash, key->data, (uint32_t)key->length, room);
    if (own == NULL)
        return -1;
    own->value_length = value_length < 0 ? SF_NO_VALUE : (int64_t)room;
    if (room == 0)
        return 0;
    memcpy(own->key + key->length, &time_ms, TIME_BYTES);
    if (value_length)
        memcpy(own->key + key->length + TIME_BYTES, value, (size_t)value_length);
    return 0;
}

/* Keep the newest of the records that lists tell, those without a key left out; the bytes of keys and values, or -1. */
SF_API int64_t sf_py_rows_add(sf_newest *rows, py_object *keys, py_object *values, py_object *times_ms) {
    ptrdiff_t count = sf_py.list_size(keys);
    int64_t size = 0;
    if (count < 0 || sf_py.list_size(values) < count || sf_py.list_size(times_ms) < count)
        return -1;
    for (ptrdiff_t row = 0; row < count; row++) {
        py_object *key = sf_py.list_item(keys, row), *value = sf_py.list_item(values, row);
        sf_named named = {NULL, 0, 0};
        char *value_data = NULL;
        ptrdiff_t value_length = SF_NO_VALUE;
        int overflow = 0;
        if (value != sf_py.none && sf_py.bytes_view(value, &value_data, &value_length) != 0)
            return -1;
        size += value_length > 0 ? value_length : 0;
        if (key == sf_py.none)
            continue;
        if (sf_py.bytes_view(key, &named.data, &named.length) != 0)
            return -1;
        size += named.length;
        named.hash = sf_newest_hash(rows, named.data, (uint32_t)named.length);
        int64_t time_ms = sf_py.integer_value(sf_py.list_item(times_ms, row), &overflow);
        if (sf_rows_put(rows, &named, value_data, value_length, time_ms) != 0) {
            sf_py.no_memory();
            return -1;
        }
    }
    return size;
}

/* Order the entries by the slices of their keys, and within a slice as they came; the number of each slice's entries is
 * told. 0, or -1 when memory is used up. Another entry undoes it. */
SF_API int64_t sf_rows_divide(sf_newest *rows, int64_t slices, int64_t *counts) {
    uint32_t *first = calloc((size_t)slices, sizeof *first), *slice = malloc((rows->count + 1u) * sizeof *slice);
    sf_item *order = malloc((rows->count + 1u) * sizeof *order);
    if (first == NULL || slice == NULL || order == NULL) {
        free(first);
        free(slice);
        free(order);
        return -1;
    }
    begin_crc();
    memset(counts, 0, (size_t)slices * sizeof *counts);
    for (uint32_t at = 0; at < rows->count; at++) {
        slice[at] = slices == 1 ? 0 : crc32_of(rows->entries[at].key, rows->entries[at].key_length) % (uint32_t)slices;
        counts[slice[at]]++;
    }
    for (int64_t number = 1; number < slices; number++)
        first[number] = first[number - 1] + (uint32_t)counts[number - 1];
    for (uint32_t at = 0; at < rows->count; at++)
        order[first[slice[at]]++] = (sf_item){slice[at], at, 0};
    free(rows->order);
    rows->order = order;
    free(first);
    free(slice);
    return 0;
}

/* --- MessagePack, written -------------------------------------------------------------------------------------- */

#define HEAD_BYTES 5
#define NUMBER_BYTES 9

static uint8_t *put_number(uint8_t *at, uint8_t kind, uint64_t number, int bytes) {
    *at++ = kind;
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        *at++ = (uint8_t)(number >> shift);
    return at;
}

static uint8_t *put_array(uint8_t *at, uint64_t count) { return put_number(at, 0xdd, count, 4); }

static uint8_t *put_bytes(uint8_t *at, const uint8_t *data, int64_t length) {
    if (length < 256)
        at = put_number(at, 0xc4, (uint64_t)length, 1);
    else
        at = put_number(at, 0xc6, (uint64_t)length, 4);
    memcpy(at, data, (size_t)length);
    return at + length;
}

static const sf_entry *ordered(const sf_newest *rows, int64_t at) { return &rows->entries[rows->order[at].index]; }

static const uint8_t *value_of(const sf_entry *of) { return of->key + of->key_length + TIME_BYTES; }

static uint8_t *put_keys(uint8_t *at, const sf_newest *rows, int64_t first, int64_t count) {
    at = put_array(at, (uint64_t)count);
    for (int64_t row = first; row < first + count; row++)
        at = put_bytes(at, ordered(rows, row)->key, ordered(rows, row)->key_length);
    return at;
}

/* A buffer as new bytes, which ends here. */
static py_object *as_bytes(uint8_t *buffer, const uint8_t *end) {
    py_object *made = sf_py.bytes_new((const char *)buffer, end - buffer);
    free(buffer);
    return made;
}

/* Entries of a divided table as a piece: keys, values, times, and no headers. */
SF_API py_object *sf_py_rows_piece(const sf_newest *rows, int64_t first, int64_t count) {
    size_t size = 5 * HEAD_BYTES;
    for (int64_t row = first; row < first + count; row++) {
        const sf_entry *own = ordered(rows, row);
        size += 2 * HEAD_BYTES + NUMBER_BYTES + own->key_length + (own->value_length < 0 ? 0 : (size_t)own->value_length);
    }
    uint8_t *buffer = malloc(size), *at = buffer;
    if (buffer == NULL)
        return sf_py.no_memory();
    *at++ = 0x94;
    at = put_keys(at, rows, first, count);
    at = put_array(at, (uint64_t)count);
    for (int64_t row = first; row < first + count; row++) {
        const sf_entry *own = ordered(rows, row);
        if (own->value_length < 0)
            *at++ = 0xc0;
        else
            at = put_bytes(at, value_of(own), own->value_length - TIME_BYTES);
    }
    at = put_array(at, (uint64_t)count);
    for (int64_t row = first; row < first + count; row++) {
        const sf_entry *own = ordered(rows, row);
        uint64_t time_ms = 0;
        if (own->value_length >= 0)
            memcpy(&time_ms, own->key + own->key_length, TIME_BYTES);
        at = put_number(at, 0xd3, time_ms, 8);
    }
    *at++ = 0x90;
    return as_bytes(buffer, at);
}

/* The same entries as a piece of the audit: the partition that they are from, keys, hashes. */
SF_API py_object *sf_py_rows_digests(const sf_newest *rows, int64_t partition, int64_t first, int64_t count) {
    size_t size = NUMBER_BYTES + 3 * HEAD_BYTES;
    for (int64_t row = first; row < first + count; row++)
        size += HEAD_BYTES + NUMBER_BYTES + ordered(rows, row)->key_length;
    uint8_t *buffer = malloc(size), *at = buffer;
    if (buffer == NULL)
        return sf_py.no_memory();
    *at++ = 0x93;
    at = put_number(at, 0xd3, (uint64_t)partition, 8);
    at = put_keys(at, rows, first, count);
    at = put_array(at, (uint64_t)count);
    for (int64_t row = first; row < first + count; row++) {
        const sf_entry *own = ordered(rows, row);
        if (own->value_length < 0) {
            *at++ = 0xc0;
            continue;
        }
        uint64_t hash = sf_entry_hash(own->key, own->key_length, value_of(own), (size_t)own->value_length - TIME_BYTES);
        at = put_number(at, 0xcf, hash, 8);
    }
    return as_bytes(buffer, at);
}

/* --- MessagePack, read ----------------------------------------------------------------------------------------- */

#define NOT_UNDERSTOOD (-2)

typedef struct {
    const uint8_t *at, *end;
    int failed;
} input;

static uint64_t take_number(input *from, size_t bytes) {
    uint64_t number = 0;
    if ((size_t)(from->end - from->at) < bytes) {
        from->failed = 1;
        return 0;
    }
    while (bytes--)
        number = number << 8 | *from->at++;
    return number;
}

static uint8_t take_kind(input *from) { return (uint8_t)take_number(from, 1); }

static int64_t take_array(input *from) {
    uint8_t kind = take_kind(from);
    if ((kind & 0xf0) == 0x90)
        return kind & 0x0f;
    if (kind == 0xdc || kind == 0xdd)
        return (int64_t)take_number(from, kind == 0xdc ? 2 : 4);
    from->failed = 1;
    return 0;
}

static uint64_t take_integer(input *from) {
    uint8_t kind = take_kind(from);
    if (kind < 0x80)
        return kind;
    if (kind >= 0xe0)
        return (uint64_t)(int64_t)(int8_t)kind;
    if (kind >= 0xcc && kind <= 0xcf)
        return take_number(from, (size_t)1 << (kind - 0xcc));
    if (kind >= 0xd0 && kind <= 0xd3) {
        size_t bytes = (size_t)1 << (kind - 0xd0);
        uint64_t number = take_number(from, bytes);
        int unused = 64 - 8 * (int)bytes;
        return (uint64_t)((int64_t)(number << unused) >> unused);
    }
    from->failed = 1;
    return 0;
}

/* Bytes, or NULL for none; a place is given for an empty one, too. */
static const uint8_t *take_bytes(input *from, uint64_t *length) {
    uint8_t kind = take_kind(from);
    *length = 0;
    if (kind == 0xc0)
        return NULL;
    if (kind < 0xc4 || kind > 0xc6) {
        from->failed = 1;
        return NULL;
    }
    *length = take_number(from, (size_t)1 << (kind - 0xc4));
    if ((uint64_t)(from->end - from->at) < *length) {
        from->failed = 1;
        return NULL;
    }
    const uint8_t *found = from->at;
    from->at += *length;
    return found;
}

static input input_of(py_object *piece) {
    char *data = NULL;
    ptrdiff_t length = 0;
    input all = {NULL, NULL, sf_py.bytes_view(piece, &data, &length) != 0};
    all.at = (const uint8_t *)data;
    all.end = all.at + length;
    return all;
}

static void skip_bytes(input *from, int64_t count) {
    uint64_t length;
    for (int64_t row = 0; row < count && !from->failed; row++)
        take_bytes(from, &length);
}

/* Take a piece in, or what of it is in one of several parts of its slice, a later record of a key in the place of the one
 * before. 0; -1 when memory is used up, NOT_UNDERSTOOD for another kind of piece, such as one with headers. */
SF_API int64_t sf_py_rows_take(sf_newest *rows, py_object *piece, int64_t slices, int64_t part, int64_t parts) {
    input keys = input_of(piece);
    if (take_kind(&keys) != 0x94)
        return NOT_UNDERSTOOD;
    int64_t count = take_array(&keys);
    input values = keys;
    skip_bytes(&values, count);
    int64_t same = take_array(&values);
    input times = values;
    skip_bytes(&times, count);
    same = take_array(&times) == count ? same : -1;
    input headers = times;
    for (int64_t row = 0; row < count && !headers.failed; row++)
        take_integer(&headers);
    if (take_array(&headers) != 0 || headers.failed || same != count || headers.at != headers.end)
        return NOT_UNDERSTOOD;
    begin_crc();
    for (int64_t first = 0; first < count; first += AHEAD) {
        int64_t some = count - first < AHEAD ? count - first : AHEAD;
        const uint8_t *found[AHEAD];
        int64_t lengths[AHEAD], times_ms[AHEAD];
        sf_named named[AHEAD];
        ptrdiff_t own = 0;
        for (int64_t row = 0; row < some; row++) {
            uint64_t key_length, value_length;
            const uint8_t *key = take_bytes(&keys, &key_length);
            found[own] = take_bytes(&values, &value_length);
            lengths[own] = found[own] == NULL ? SF_NO_VALUE : (int64_t)value_length;
            times_ms[own] = (int64_t)take_integer(&times);
            if (key == NULL)
                return NOT_UNDERSTOOD;
            if (parts > 1 &&
                crc32_of(key, (uint32_t)key_length) % (uint64_t)(slices * parts) / (uint64_t)slices != (uint64_t)part)
                continue;
            named[own] = (sf_named){(char *)key, (ptrdiff_t)key_length, 0};
            named[own].hash = sf_newest_hash(rows, key, (uint32_t)key_length);
            own++;
        }
        sf_newest_fetch_ahead(rows, named, own);
        for (ptrdiff_t at = 0; at < own; at++)
            if (sf_rows_put(rows, &named[at], found[at], lengths[at], times_ms[at]) != 0)
                return -1;
    }
    return 0;
}

/* The partition that a piece of the audit is from, or NOT_UNDERSTOOD. */
SF_API int64_t sf_py_digests_partition(py_object *piece) {
    input from = input_of(piece);
    int64_t partition = take_kind(&from) == 0x93 ? (int64_t)take_integer(&from) : -1;
    return from.failed || partition < 0 ? NOT_UNDERSTOOD : partition;
}

/* Take a piece of the audit in. Returns as sf_py_rows_take. */
SF_API int64_t sf_py_digests_take(sf_newest *digests, py_object *piece) {
    input keys = input_of(piece);
    if (take_kind(&keys) != 0x93)
        return NOT_UNDERSTOOD;
    take_integer(&keys);
    int64_t count = take_array(&keys);
    input hashes = keys;
    skip_bytes(&hashes, count);
    if (take_array(&hashes) != count || hashes.failed)
        return NOT_UNDERSTOOD;
    for (int64_t row = 0; row < count; row++) {
        uint64_t key_length, hash = 0;
        const uint8_t *key = take_bytes(&keys, &key_length);
        int is_deleted = hashes.at < hashes.end && *hashes.at == 0xc0;
        if (is_deleted)
            hashes.at++;
        else
            hash = take_integer(&hashes);
        if (key == NULL || hashes.failed)
            return NOT_UNDERSTOOD;
        if (sf_newest_put(digests, key, (uint32_t)key_length, &hash, is_deleted ? SF_NO_VALUE : (int64_t)sizeof hash) != 0)
            return -1;
    }
    return hashes.at == hashes.end ? 0 : NOT_UNDERSTOOD;
}

/* --- what is live ----------------------------------------------------------------------------------------------- */

static ptrdiff_t live_rows(const sf_newest *rows, int64_t first, int64_t after) {
    ptrdiff_t live = 0;
    for (int64_t at = first; at < after; at++)
        live += rows->entries[at].value_length >= 0;
    return live;
}

/* The keys of some entries, as they came, deletions left out: a new list. */
SF_API py_object *sf_py_rows_keys(const sf_newest *rows, int64_t first, int64_t after) {
    py_object *keys = sf_py.list_new(live_rows(rows, first, after));
    ptrdiff_t row = 0;
    for (int64_t at = first; keys != NULL && at < after; at++) {
        const sf_entry *own = &rows->entries[at];
        if (own->value_length < 0)
            continue;
        py_object *key = sf_py.bytes_new((const char *)own->key, own->key_length);
        if (key == NULL) {
            sf_py.drop(keys);
            return NULL;
        }
        sf_py.list_set(keys, row++, key);
    }
    return keys;
}

/* Their values and times: a new tuple of two new lists. */
SF_API py_object *sf_py_rows_values(const sf_newest *rows, int64_t first, int64_t after) {
    py_object *lists = sf_two_lists(live_rows(rows, first, after));
    ptrdiff_t row = 0;
    for (int64_t at = first; lists != NULL && at < after; at++) {
        const sf_entry *own = &rows->entries[at];
        if (own->value_length < 0)
            continue;
        int64_t time_ms;
        memcpy(&time_ms, own->key + own->key_length, TIME_BYTES);
        py_object *value = sf_py.bytes_new((const char *)value_of(own), (ptrdiff_t)(own->value_length - TIME_BYTES));
        py_object *time = value == NULL ? NULL : sf_py.integer_new(time_ms);
        if (time == NULL) {
            if (value != NULL)
                sf_py.drop(value);
            sf_py.drop(lists);
            return NULL;
        }
        sf_py.list_set(sf_py.tuple_item(lists, 0), row, value);
        sf_py.list_set(sf_py.tuple_item(lists, 1), row++, time);
    }
    return lists;
}

/* Add the hashes of the entries that sf_py_rows_keys gave to the sums of their owners, each a number below `owners`: of
 * each its entries and the sum of their hashes modulo 2^64. 0, or -1 when there are not as many. */
SF_API int64_t sf_py_digests_sum(
    const sf_newest *digests, int64_t first, int64_t after, py_object *owned_by, int64_t owners, uint64_t *sums) {
    ptrdiff_t row = 0, rows = sf_py.list_size(owned_by);
    for (int64_t at = first; at < after; at++) {
        const sf_entry *own = &digests->entries[at];
        int overflow = 0;
        uint64_t hash;
        if (own->value_length < 0)
            continue;
        long long owner = row < rows ? sf_py.integer_value(sf_py.list_item(owned_by, row++), &overflow) : -1;
        if (overflow || owner < 0 || owner >= owners)
            return -1;
        memcpy(&hash, own->key + own->key_length, sizeof hash);
        sums[2 * owner]++;
        sums[2 * owner + 1] += hash;
    }
    return row == rows ? 0 : -1;
}
