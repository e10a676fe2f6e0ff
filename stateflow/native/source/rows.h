/* Records with their times in a table of newest.c; rows.c, entry_hash.c. */
#ifndef STATEFLOW_ROWS_H
#define STATEFLOW_ROWS_H

#include "newest.h"

#define TIME_BYTES ((int64_t)sizeof(int64_t))

/* Keep a record in the place of the one before of its key, SF_NO_VALUE for a deletion; -1 when memory is used up. */
int sf_rows_put(sf_newest *rows, const sf_named *key, const void *value, int64_t value_length, int64_t time_ms);

/* 64 bits of one entry, as scale/audit.py has them. */
uint64_t sf_entry_hash(const uint8_t *key, size_t key_length, const uint8_t *value, size_t value_length);

#endif
