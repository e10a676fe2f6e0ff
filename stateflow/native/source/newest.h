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

/* The entry of a key; NULL if it has none. */
sf_entry *sf_newest_find(const sf_newest *newest, const void *key, uint32_t key_length);

/* The same, made where there was none, with room for a value: a fresh one has the length SF_NO_VALUE. NULL when memory
 * is used up. Entries move when others are made: use it before the next one. */
sf_entry *sf_newest_entry(sf_newest *newest, const void *key, uint32_t key_length, uint32_t room);

/* The same in two steps, for many keys whose memory is fetched beforehand. */
uint32_t sf_newest_hash(const sf_newest *newest, const void *key, uint32_t key_length);
sf_entry *sf_newest_hashed(sf_newest *newest, uint32_t hash, const void *key, uint32_t key_length, uint32_t room);

/* Memory that is taken, with what sorting will take. */
SF_API int64_t sf_newest_bytes(const sf_newest *newest);

#endif
