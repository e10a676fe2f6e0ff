/* The newest value of each key: an open hash table over an arena, given out in the order of the keys.
 *
 * Keys and values lie one behind the other in blocks that are never moved. A value that fits in the place of the one
 * before takes it; else the entry gets a new place, and the old one is lost until the table is emptied. Both count in
 * sf_newest_bytes, so whoever bounds the table bounds what it really takes.
 */
#include <stdlib.h>
#include <string.h>

#include "newest.h"

#define BLOCK_BYTES_MIN ((size_t)1 << 12)
#define BLOCK_BYTES_MAX ((size_t)1 << 20)
#define FIRST_SLOTS 128u

static uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A seeded hash in the manner of wyhash (Wang Yi, public domain): who chooses keys cannot choose their slots. */
static uint32_t hash_of(uint64_t seed, const uint8_t *key, uint32_t length) {
    uint64_t h = seed ^ mixed(length ^ 0xa0761d6478bd642full, 0xe7037ed1a0b428dbull), word = 0;
    uint32_t left = length;
    for (; left >= 8; key += 8, left -= 8) {
        memcpy(&word, key, 8);
        h = mixed(h ^ word, 0x8ebc6af09c88c6e3ull ^ seed);
    }
    word = 0;
    memcpy(&word, key, left);
    h = mixed(h ^ word, 0x589965cc75374cc3ull ^ seed);
    return (uint32_t)(h ^ h >> 32);
}

SF_API sf_newest *sf_newest_new(uint64_t seed, const uint8_t *ignored, int64_t ignored_length) {
    if (ignored_length > PREFIX_MAX)
        return NULL;
    sf_newest *newest = calloc(1, sizeof *newest);
    if (newest == NULL)
        return NULL;
    newest->seed = seed;
    newest->ignored_length = (uint32_t)ignored_length;
    memcpy(newest->ignored, ignored, (size_t)ignored_length);
    return newest;
}

/* Forget all entries, and give their memory back. */
SF_API void sf_newest_clear(sf_newest *newest) {
    while (newest->blocks != NULL) {
        sf_block *before = newest->blocks->before;
        free(newest->blocks);
        newest->blocks = before;
    }
    free(newest->entries);
    free(newest->slots);
    free(newest->order);
    newest->entries = NULL;
    newest->slots = NULL;
    newest->order = NULL;
    newest->count = newest->entries_max = newest->slots_count = 0;
    newest->block_used = newest->blocks_bytes = 0;
}

SF_API void sf_newest_free(sf_newest *newest) {
    sf_newest_clear(newest);
    free(newest);
}

SF_API int64_t sf_newest_count(const sf_newest *newest) { return newest->count; }

SF_API int64_t sf_newest_bytes(const sf_newest *newest) {
    return (int64_t)(newest->blocks_bytes + newest->entries_max * sizeof(sf_entry) + newest->slots_count * sizeof(uint32_t) +
                     2 * newest->count * sizeof(sf_item));
}

static uint8_t *place(sf_newest *newest, size_t size) {
    sf_block *last = newest->blocks;
    if (last == NULL || last->size - newest->block_used < size) {
        size_t usual = newest->blocks_bytes < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : newest->blocks_bytes;
        usual = usual > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX : usual;
        size_t whole = size > usual / 4 ? size : usual;
        sf_block *fresh = malloc(sizeof *fresh + whole);
        if (fresh == NULL)
            return NULL;
        fresh->size = whole;
        newest->blocks_bytes += sizeof *fresh + whole;
        if (last != NULL && whole == size) { /* a large one by itself: the block in use stays the first */
            fresh->before = last->before;
            last->before = fresh;
            return fresh->bytes;
        }
        fresh->before = last;
        newest->blocks = last = fresh;
        newest->block_used = 0;
    }
    uint8_t *found = last->bytes + newest->block_used;
    newest->block_used += size;
    return found;
}

static int grow_slots(sf_newest *newest) {
    uint32_t count = newest->slots_count ? newest->slots_count * 2 : FIRST_SLOTS;
    uint32_t *slots = count ? calloc(count, sizeof *slots) : NULL;
    if (slots == NULL)
        return -1;
    for (uint32_t index = 0; index < newest->count; index++) {
        uint32_t slot = newest->entries[index].hash & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = index + 1;
    }
    free(newest->slots);
    newest->slots = slots;
    newest->slots_count = count;
    return 0;
}

static sf_entry *new_entry(sf_newest *newest) {
    if (newest->count == newest->entries_max) {
        uint32_t wanted = newest->entries_max ? newest->entries_max + newest->entries_max / 2 : FIRST_SLOTS / 2;
        sf_entry *entries = realloc(newest->entries, wanted * sizeof *entries);
        if (entries == NULL)
            return NULL;
        newest->entries = entries;
        newest->entries_max = wanted;
    }
    return &newest->entries[newest->count];
}

static int give_room(sf_newest *newest, sf_entry *of, const void *key, uint32_t key_length, uint32_t room) {
    uint8_t *at = place(newest, (size_t)key_length + room);
    if (at == NULL)
        return -1;
    memcpy(at, key, key_length);
    of->key = at;
    of->key_length = key_length;
    of->room = room;
    return 0;
}

static sf_entry *found_from(const sf_newest *newest, uint32_t *slot, uint32_t hash, const void *key, uint32_t key_length) {
    uint32_t mask = newest->slots_count - 1;
    for (; newest->slots[*slot]; *slot = (*slot + 1) & mask) {
        sf_entry *other = &newest->entries[newest->slots[*slot] - 1];
        if (other->hash == hash && other->key_length == key_length && memcmp(other->key, key, key_length) == 0)
            return other;
    }
    return NULL;
}

sf_entry *sf_newest_find_hashed(const sf_newest *newest, uint32_t hash, const void *key, uint32_t key_length) {
    if (newest->count == 0)
        return NULL;
    uint32_t slot = hash & (newest->slots_count - 1);
    return found_from(newest, &slot, hash, key, key_length);
}

void sf_newest_fetch_ahead(const sf_newest *newest, const sf_named *keys, ptrdiff_t count) {
    if (newest->slots_count == 0)
        return;
    uint32_t mask = newest->slots_count - 1;
    for (ptrdiff_t at = 0; at < count; at++)
        __builtin_prefetch(&newest->slots[keys[at].hash & mask]);
    for (ptrdiff_t at = 0; at < count; at++) {
        uint32_t entry = newest->slots[keys[at].hash & mask];
        if (entry)
            __builtin_prefetch(&newest->entries[entry - 1]);
    }
    for (ptrdiff_t at = 0; at < count; at++) {
        uint32_t entry = newest->slots[keys[at].hash & mask];
        if (entry)
            __builtin_prefetch(newest->entries[entry - 1].key, 1);
    }
}

uint32_t sf_newest_hash(const sf_newest *newest, const void *key, uint32_t key_length) {
    return hash_of(newest->seed, key, key_length);
}

sf_entry *sf_newest_entry(sf_newest *newest, const void *key, uint32_t key_length, uint32_t room) {
    return sf_newest_hashed(newest, hash_of(newest->seed, key, key_length), key, key_length, room);
}

sf_entry *sf_newest_hashed(sf_newest *newest, uint32_t hash, const void *key, uint32_t key_length, uint32_t room) {
    if (newest->count >= newest->slots_count / 4 * 3 && grow_slots(newest) != 0)
        return NULL;
    uint32_t slot = hash & (newest->slots_count - 1);
    sf_entry *own = found_from(newest, &slot, hash, key, key_length);
    if (own != NULL)
        return own->room >= room || give_room(newest, own, key, key_length, room) == 0 ? own : NULL;
    free(newest->order); /* without the one that comes */
    newest->order = NULL;
    own = new_entry(newest);
    if (own == NULL || give_room(newest, own, key, key_length, room) != 0)
        return NULL;
    own->hash = hash;
    own->value_length = SF_NO_VALUE;
    newest->slots[slot] = ++newest->count;
    return own;
}

/* Keep a key's value, SF_NO_VALUE for a deletion, in the place of the one before; -1 when memory is used up. */
int sf_newest_put(sf_newest *newest, const void *key, uint32_t key_length, const void *value, int64_t value_length) {
    if (newest->ignored_length && key_length >= newest->ignored_length &&
        memcmp(key, newest->ignored, newest->ignored_length) == 0)
        return 0;
    uint32_t room = value_length < 0 ? 0 : (uint32_t)value_length;
    sf_entry *own = sf_newest_entry(newest, key, key_length, room);
    if (own == NULL)
        return -1;
    own->value_length = value_length;
    if (room)
        memcpy(own->key + key_length, value, room);
    return 0;
}

/* Keep what the lists say, key None and the log's own keys left out; the bytes of keys and values, or -1. */
SF_API int64_t sf_py_newest_add(sf_newest *newest, py_object *keys, py_object *values) {
    ptrdiff_t rows = sf_py.list_size(keys);
    int64_t size = 0;
    if (rows < 0 || sf_py.list_size(values) < rows)
        return -1;
    for (ptrdiff_t row = 0; row < rows; row++) {
        py_object *key = sf_py.list_item(keys, row), *value = sf_py.list_item(values, row);
        char *key_data = NULL, *value_data = NULL;
        ptrdiff_t key_length = 0, value_length = SF_NO_VALUE;
        if (value != sf_py.none && sf_py.bytes_view(value, &value_data, &value_length) != 0)
            return -1;
        size += value_length > 0 ? value_length : 0;
        if (key == sf_py.none)
            continue;
        if (sf_py.bytes_view(key, &key_data, &key_length) != 0)
            return -1;
        size += key_length;
        if (sf_newest_put(newest, key_data, (uint32_t)key_length, value_data, value_length) != 0) {
            sf_py.no_memory();
            return -1;
        }
    }
    return size;
}

/* --- in order ------------------------------------------------------------------------------------------------- */

static const sf_entry *nth(const sf_newest *newest, const uint32_t *indexes, size_t at) {
    return &newest->entries[indexes == NULL ? at : indexes[at]];
}

/* How many bytes all these keys have in common at their beginning. */
static uint32_t common_length(const sf_newest *newest, const uint32_t *indexes, size_t count) {
    const sf_entry *first = nth(newest, indexes, 0);
    uint32_t length = first->key_length;
    for (size_t at = 1; at < count && length; at++) {
        const sf_entry *other = nth(newest, indexes, at);
        uint32_t same = 0, most = length < other->key_length ? length : other->key_length;
        while (same < most && first->key[same] == other->key[same])
            same++;
        length = same;
    }
    return length;
}

static uint64_t head_of(const sf_entry *of, uint32_t skipped) {
    uint32_t length = of->key_length - skipped;
    uint64_t head = 0;
    for (uint32_t index = 0; index < 8; index++)
        head = head << 8 | (index < length ? of->key[skipped + index] : 0);
    return head;
}

static int is_before(const sf_entry *entries, const sf_item *a, const sf_item *b) {
    if (a->head != b->head || entries == NULL)
        return a->head < b->head;
    const sf_entry *x = &entries[a->index], *y = &entries[b->index];
    int order = memcmp(x->key, y->key, x->key_length < y->key_length ? x->key_length : y->key_length);
    return order ? order < 0 : x->key_length < y->key_length;
}

#define FEW 128 /* so few are merged: the counters of their bytes would take longer to clear */

/* Items in the order of their heads, those with equal ones as they came: by one byte after the other, the last one first,
 * those left out that are the same in all of them. Returns where they are, which is one of both. */
static sf_item *by_bytes(sf_item *from, sf_item *into, size_t count) {
    uint32_t counts[8][256] = {{0}};
    for (size_t at = 0; at < count; at++)
        for (int byte = 0; byte < 8; byte++)
            counts[byte][from[at].head >> 8 * byte & 0xff]++;
    for (int byte = 0; byte < 8; byte++) {
        uint32_t *of = counts[byte], next = 0;
        if (of[from[0].head >> 8 * byte & 0xff] == count)
            continue;
        for (int value = 0; value < 256; value++) {
            uint32_t here = of[value];
            of[value] = next;
            next += here;
        }
        for (size_t at = 0; at < count; at++)
            into[of[from[at].head >> 8 * byte & 0xff]++] = from[at];
        sf_item *swapped = from;
        from = into;
        into = swapped;
    }
    return from;
}

/* Items in the order of their heads, those with equal ones in that of their keys, or as they came where no entries are
 * given: by merging. Returns where they are, which is one of both. */
static sf_item *merged(const sf_entry *entries, sf_item *from, sf_item *into, size_t count) {
    for (size_t width = 1; width < count; width *= 2) { /* a merge sort, from below */
        for (size_t low = 0; low < count; low += 2 * width) {
            size_t middle = low + width < count ? low + width : count;
            size_t high = low + 2 * width < count ? low + 2 * width : count;
            if (middle == high || !is_before(entries, &from[middle], &from[middle - 1])) { /* is in order */
                memcpy(&into[low], &from[low], (high - low) * sizeof *into);
                continue;
            }
            size_t left = low, right = middle;
            for (size_t at = low; at < high; at++) {
                int takes_right =
                    left == middle || (right < high && is_before(entries, &from[right], &from[left]));
                into[at] = takes_right ? from[right++] : from[left++];
            }
        }
        sf_item *swapped = from;
        from = into;
        into = swapped;
    }
    return from;
}

/* Items that are in the order of their heads, those with equal ones in that of their keys. */
static void order_equal(const sf_entry *entries, sf_item *items, sf_item *beside, size_t count) {
    for (size_t first = 0, after; first < count; first = after) {
        for (after = first + 1; after < count && items[after].head == items[first].head; after++)
            ;
        if (after == first + 1)
            continue;
        sf_item *found = merged(entries, &items[first], &beside[first], after - first);
        if (found != &items[first])
            memcpy(&items[first], found, (after - first) * sizeof *items);
    }
}

/* As `merged`. Takes the items over, and gives them or others that are to be freed; NULL when memory is used up. */
static sf_item *sorted(const sf_entry *entries, sf_item *from, size_t count) {
    sf_item *into = from == NULL ? NULL : malloc((count ? count : 1) * sizeof *into);
    if (into == NULL) {
        free(from);
        return NULL;
    }
    sf_item *found = count > FEW ? by_bytes(from, into, count) : merged(entries, from, into, count);
    sf_item *beside = found == from ? into : from;
    if (count > FEW && entries != NULL)
        order_equal(entries, found, beside, count);
    free(beside);
    return found;
}

sf_item *sf_newest_order(const sf_newest *newest, const uint32_t *indexes, size_t count) {
    sf_item *items = malloc((count ? count : 1) * sizeof *items);
    uint32_t skipped = count ? common_length(newest, indexes, count) : 0;
    for (size_t at = 0; items != NULL && at < count; at++) {
        const sf_entry *own = nth(newest, indexes, at);
        items[at] = (sf_item){head_of(own, skipped), (uint32_t)(own - newest->entries), 0};
    }
    return sorted(newest->entries, items, count);
}

sf_item *sf_newest_by_head(sf_item *items, size_t count) { return sorted(NULL, items, count); }

/* Order the entries by their keys; 0, or -1 when memory is used up. Another entry undoes it. */
SF_API int64_t sf_newest_sort(sf_newest *newest) {
    free(newest->order);
    newest->order = NULL;
    if (newest->count == 0)
        return 0;
    newest->order = sf_newest_order(newest, NULL, newest->count);
    return newest->order == NULL ? -1 : 0;
}

/* A new list of (key, value or None) of `count` entries from the `first` on, in order; after sf_newest_sort. */
SF_API py_object *sf_py_newest_rows(const sf_newest *newest, int64_t first, int64_t count) {
    py_object *rows = sf_py.list_new((ptrdiff_t)count);
    for (int64_t row = 0; rows != NULL && row < count; row++) {
        const sf_entry *own = &newest->entries[newest->order[first + row].index];
        py_object *pair = sf_py.tuple_new(2);
        py_object *key = pair == NULL ? NULL : sf_py.bytes_new((const char *)own->key, own->key_length);
        py_object *value = key == NULL ? NULL : sf_bytes_or_none(own->key + own->key_length, own->value_length);
        if (value == NULL) {
            if (key != NULL)
                sf_py.drop(key);
            if (pair != NULL)
                sf_py.drop(pair);
            sf_py.drop(rows);
            return NULL;
        }
        sf_py.tuple_set(pair, 0, key);
        sf_py.tuple_set(pair, 1, value);
        sf_py.list_set(rows, (ptrdiff_t)row, pair);
    }
    return rows;
}

/* --- into columns of Python ------------------------------------------------------------------------------------ */

py_object *sf_two_lists(ptrdiff_t rows) {
    py_object *lists = sf_py.tuple_new(2);
    for (int at = 0; lists != NULL && at < 2; at++) {
        py_object *list = sf_py.list_new(rows);
        if (list == NULL || sf_py.tuple_set(lists, at, list) != 0) {
            sf_py.drop(lists);
            return NULL;
        }
    }
    return lists;
}

int sf_set_row(py_object *lists[2], ptrdiff_t row, const sf_entry *of, py_object *beside) {
    if (beside == NULL || sf_py.list_set(lists[1], row, beside) != 0)
        return -1;
    py_object *key = sf_py.bytes_new((const char *)of->key, of->key_length);
    return key == NULL ? -1 : sf_py.list_set(lists[0], row, key);
}
