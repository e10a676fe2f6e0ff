/* The table of newest.c, for whatever else keeps something of each key. */
#ifndef STATEFLOW_NEWEST_H
#define STATEFLOW_NEWEST_H

#include "core.h"

#define PREFIX_MAX 16

typedef struct sf_block {
    struct sf_block *before;
    size_t size;
    uint8_t bytes[];
} sf_block;

typedef struct {
    uint8_t *key; /* its value follows, wherever that happens to be aligned */
    uint32_t key_length;
    uint32_t room; /* for the value */
    int64_t value_length;
    uint32_t hash;
    uint32_t unused;
} sf_entry;

typedef struct {
    uint64_t head; /* the bytes behind what all keys begin with, big-endian, so that numbers compare as bytes do */
    uint32_t index;
    uint32_t unused;
} sf_item;

struct sf_newest {
    uint64_t seed;
    uint8_t ignored[PREFIX_MAX]; /* keys that begin with this are the log's own */
    uint32_t ignored_length;
    sf_block *blocks;
    size_t block_used;
    size_t blocks_bytes;
    sf_entry *entries;
    uint32_t count, entries_max;
    uint32_t *slots; /* an entry's number + 1, or 0 */
    uint32_t slots_count;
    sf_item *order;
};

/* A table, to be freed, whose hashes a seed tells; keys that begin with `ignored` are left out by sf_newest_put. */
SF_API sf_newest *sf_newest_new(uint64_t seed, const uint8_t *ignored, int64_t ignored_length);
SF_API void sf_newest_clear(sf_newest *newest);
SF_API void sf_newest_free(sf_newest *newest);

/* The entry of a key, made where there was none, with room for a value: a fresh one has the length SF_NO_VALUE. NULL when memory
 * is used up. Entries move when others are made: use it before the next one. */
sf_entry *sf_newest_entry(sf_newest *newest, const void *key, uint32_t key_length, uint32_t room);

/* So many keys are looked for at a time. */
#define AHEAD 16

/* A key that is looked for. */
typedef struct {
    char *data;
    ptrdiff_t length;
    uint32_t hash;
} sf_named;

/* The same in two steps, for many keys whose memory is fetched beforehand. */
uint32_t sf_newest_hash(const sf_newest *newest, const void *key, uint32_t key_length);
sf_entry *sf_newest_hashed(sf_newest *newest, uint32_t hash, const void *key, uint32_t key_length, uint32_t room);
sf_entry *sf_newest_find_hashed(const sf_newest *newest, uint32_t hash, const void *key, uint32_t key_length);

/* Have what these keys will be looked for in come from memory meanwhile: a table is larger than the caches near by. */
void sf_newest_fetch_ahead(const sf_newest *newest, const sf_named *keys, ptrdiff_t count);

/* Entries, all of them where no indexes are given, in the order of their keys: to be freed. NULL when memory is used up. */
sf_item *sf_newest_order(const sf_newest *newest, const uint32_t *indexes, size_t count);

/* Items that are in the order of their keys in that of their heads. Takes them over, and gives them or others that are
 * to be freed; NULL when memory is used up. */
sf_item *sf_newest_by_head(sf_item *items, size_t count);

/* A new tuple of two new lists, to be filled row by row. */
py_object *sf_two_lists(ptrdiff_t rows);

/* Put a key and what is to be beside it, taken over, into two lists; -1 when memory is used up. */
int sf_set_row(py_object *lists[2], ptrdiff_t row, const sf_entry *of, py_object *beside);

/* Memory that is taken, with what sorting will take. */
SF_API int64_t sf_newest_bytes(const sf_newest *newest);

#endif
