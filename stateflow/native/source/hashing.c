/* murmur2 as Kafka's clients compute it: org.apache.kafka.common.utils.Utils.murmur2, seed 0x9747b28c. */
#include <string.h>

#include "core.h"

#define SEED 0x9747b28cu
#define M 0x5bd1e995u

static uint32_t little_word(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t murmur2(const uint8_t *data, size_t length) {
    uint32_t h = SEED ^ (uint32_t)length;
    const uint8_t *end = data + (length & ~(size_t)3);
    for (; data < end; data += 4) {
        uint32_t k = little_word(data) * M;
        k ^= k >> 24;
        h = h * M ^ k * M;
    }
    switch (length & 3) {
    case 3:
        h ^= (uint32_t)data[2] << 16; /* fall through */
    case 2:
        h ^= (uint32_t)data[1] << 8; /* fall through */
    case 1:
        h ^= data[0];
        h *= M;
    }
    h ^= h >> 13;
    h *= M;
    return h ^ h >> 15;
}

/* The 31-bit routing hash of every key of a list, modulo `divisor` if that is not 0, as a new list. */
SF_API py_object *sf_py_routing_hashes(py_object *keys, int64_t divisor) {
    ptrdiff_t count = sf_py.list_size(keys);
    py_object *found = count < 0 ? NULL : sf_py.list_new(count);
    if (found == NULL)
        return NULL;
    for (ptrdiff_t row = 0; row < count; row++) {
        char *data;
        ptrdiff_t length;
        if (sf_py.bytes_view(sf_py.list_item(keys, row), &data, &length) != 0) {
            sf_py.drop(found);
            return NULL;
        }
        int64_t hash = murmur2((const uint8_t *)data, (size_t)length) & 0x7fffffffu;
        py_object *number = sf_py.integer_new(divisor ? hash % divisor : hash);
        if (number == NULL) {
            sf_py.drop(found);
            return NULL;
        }
        sf_py.list_set(found, row, number);
    }
    return found;
}
