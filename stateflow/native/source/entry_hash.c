/* BLAKE2b (RFC 7693), 8 bytes of it, of an entry: the key's length, a one, key and value. */
#include <string.h>

#include "rows.h"

#define BLOCK 128u
#define ROUNDS 12

static const uint64_t initial[8] = {
    0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull, 0x3c6ef372fe94f82bull, 0xa54ff53a5f1d36f1ull,
    0x510e527fade682d1ull, 0x9b05688c2b3e6c1full, 0x1f83d9abfb41bd6bull, 0x5be0cd19137e2179ull,
};

static const uint8_t sigma[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

typedef struct {
    uint64_t state[8];
    uint64_t hashed;
    size_t held;
    uint8_t block[BLOCK];
} blake;

static uint64_t turned(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

static void mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

static uint64_t little_endian(const uint8_t *at) {
    uint64_t word = 0;
    for (int byte = 7; byte >= 0; byte--)
        word = word << 8 | at[byte];
    return word;
}

static void compress(blake *own, int is_last) {
    uint64_t v[16], m[16];
    for (int word = 0; word < 16; word++)
        m[word] = little_endian(own->block + 8 * word);
    memcpy(v, own->state, sizeof own->state);
    memcpy(v + 8, initial, sizeof initial);
    v[12] ^= own->hashed;
    v[14] = is_last ? ~v[14] : v[14];
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *s = sigma[round];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int word = 0; word < 8; word++)
        own->state[word] ^= v[word] ^ v[word + 8];
}

static void update(blake *own, const uint8_t *data, size_t length) {
    while (length) {
        if (own->held == BLOCK) { /* only once more comes: the last block is another */
            own->hashed += BLOCK;
            compress(own, 0);
            own->held = 0;
        }
        size_t some = length < BLOCK - own->held ? length : BLOCK - own->held;
        memcpy(own->block + own->held, data, some);
        own->held += some;
        data += some;
        length -= some;
    }
}

uint64_t sf_entry_hash(const uint8_t *key, size_t key_length, const uint8_t *value, size_t value_length) {
    blake own = {.hashed = 0, .held = 0};
    uint32_t length = (uint32_t)key_length;
    uint8_t head[5] = {(uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, 1};
    memcpy(own.state, initial, sizeof initial);
    own.state[0] ^= 0x01010000u ^ 8u; /* no key, 8 bytes of digest */
    update(&own, head, sizeof head);
    update(&own, key, key_length);
    update(&own, value, value_length);
    own.hashed += own.held;
    memset(own.block + own.held, 0, BLOCK - own.held);
    compress(&own, 1);
    return __builtin_bswap64(own.state[0]); /* the digest is little-endian, the number that it makes is not */
}
