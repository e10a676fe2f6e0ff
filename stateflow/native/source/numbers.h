/* Numbers as aggregates keep them: none, an integer of 64 bits, a float; and how they are written. */
#ifndef STATEFLOW_NUMBERS_H
#define STATEFLOW_NUMBERS_H

#include "core.h"

enum { SF_ABSENT, SF_INTEGER, SF_FLOAT };

typedef struct {
    int kind;
    uint32_t count; /* of the numbers that a mean has added up; else 0 */
    union {
        int64_t integer;
        double real;
    };
} sf_number;

/* How numbers are written: big-endian in 8 bytes, as Kafka's LongSerializer; as MessagePack, in the shortest form; in
 * 8 bytes as Kafka's DoubleSerializer does; or of a mean count and sum, as a MessagePack array. */
enum { SF_FORMAT_LONG, SF_FORMAT_MSGPACK, SF_FORMAT_DOUBLE, SF_FORMAT_MEAN };
#define SF_NUMBER_BYTES_MAX 15

/* Write a number that there is; returns how many bytes it took. */
int sf_number_write(int format, const sf_number *number, uint8_t *into);

/* Read a whole value; -1 for anything that is no such number, or none that fits. */
int sf_number_read(int format, const uint8_t *data, ptrdiff_t length, sf_number *number);

/* A number of Python's own, no other kind of object; -1 for anything else. Booleans are integers where wanted. */
int sf_number_of(py_object *item, int takes_bool, sf_number *number);

/* A new object of Python's: int, float or None; of a mean a tuple of count and sum. */
py_object *sf_number_object(int format, const sf_number *number);

/* One number with another added to it, its count as it was; -1 when that does not fit. */
int sf_number_add(sf_number *total, const sf_number *value);

/* The smaller of two, or the larger, the first one where they are equal; -1 when they cannot be compared here. */
int sf_number_choose(sf_number *one, const sf_number *two, int most);

#endif
