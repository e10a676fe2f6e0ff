/* Numbers between Python, MessagePack and what is added up. */
#include <string.h>

#include "numbers.h"

#define PAIR_HEAD 0x92 /* of an array of two */

static int write_rest(uint8_t head, uint64_t number, int size, uint8_t *into) {
    into[0] = head;
    for (int at = 0; at < size; at++)
        into[1 + at] = (uint8_t)(number >> 8 * (size - 1 - at));
    return 1 + size;
}

static int write_integer(int64_t number, uint8_t *into) {
    uint64_t bits = (uint64_t)number;
    if (number >= -32 && number <= 0x7f)
        return write_rest((uint8_t)number, 0, 0, into);
    if (number > 0) {
        if (number <= 0xff)
            return write_rest(0xcc, bits, 1, into);
        if (number <= 0xffff)
            return write_rest(0xcd, bits, 2, into);
        return number <= 0xffffffff ? write_rest(0xce, bits, 4, into) : write_rest(0xcf, bits, 8, into);
    }
    if (number >= INT8_MIN)
        return write_rest(0xd0, bits, 1, into);
    if (number >= INT16_MIN)
        return write_rest(0xd1, bits, 2, into);
    return number >= INT32_MIN ? write_rest(0xd2, bits, 4, into) : write_rest(0xd3, bits, 8, into);
}

int sf_number_write(int format, const sf_number *number, uint8_t *into) {
    uint64_t bits;
    if (format == SF_FORMAT_LONG) {
        bits = sf_big_endian((uint64_t)number->integer);
        memcpy(into, &bits, sizeof bits);
        return sizeof bits;
    }
    int head = 0;
    if (format == SF_FORMAT_MEAN) {
        into[head++] = PAIR_HEAD;
        head += write_integer(number->count, into + head);
    }
    into += head;
    if (number->kind == SF_INTEGER)
        return head + write_integer(number->integer, into);
    memcpy(&bits, &number->real, sizeof bits);
    if (format == SF_FORMAT_DOUBLE) {
        bits = sf_big_endian(bits);
        memcpy(into, &bits, sizeof bits);
        return sizeof bits;
    }
    return head + write_rest(0xcb, bits, 8, into);
}

static uint64_t read_bits(const uint8_t *data, int size) {
    uint64_t bits = 0;
    for (int at = 0; at < size; at++)
        bits = bits << 8 | data[at];
    return bits;
}

static const int8_t SIZES[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* of 0xca to 0xd3 */

static int read_msgpack(const uint8_t *data, ptrdiff_t length, sf_number *number) {
    uint8_t head = length > 0 ? data[0] : 0xc0;
    number->kind = SF_INTEGER;
    if (head <= 0x7f || head >= 0xe0) {
        number->integer = (int8_t)head;
        return length == 1 ? 0 : -1;
    }
    if (head < 0xca || head > 0xd3 || length != 1 + SIZES[head - 0xca])
        return -1;
    int size = SIZES[head - 0xca];
    uint64_t bits = read_bits(data + 1, size);
    if (head == 0xca) {
        uint32_t single_bits = (uint32_t)bits;
        float single;
        memcpy(&single, &single_bits, sizeof single);
        number->kind = SF_FLOAT;
        number->real = single;
    } else if (head == 0xcb) {
        number->kind = SF_FLOAT;
        memcpy(&number->real, &bits, sizeof bits);
    } else if (head <= 0xcf) {
        if (bits > INT64_MAX)
            return -1;
        number->integer = (int64_t)bits;
    } else {
        int unused = 64 - 8 * size;
        number->integer = (int64_t)(bits << unused) >> unused;
    }
    return 0;
}

/* Count and sum of a mean. */
static int read_pair(const uint8_t *data, ptrdiff_t length, sf_number *number) {
    if (length < 2 || data[0] != PAIR_HEAD)
        return -1;
    ptrdiff_t after = 2 + (data[1] >= 0xca && data[1] <= 0xd3 ? SIZES[data[1] - 0xca] : 0);
    sf_number count = {0};
    if (after >= length || read_msgpack(data + 1, after - 1, &count) != 0 || count.kind != SF_INTEGER || count.integer < 0 ||
        count.integer > UINT32_MAX)
        return -1;
    number->count = (uint32_t)count.integer;
    return read_msgpack(data + after, length - after, number);
}

int sf_number_read(int format, const uint8_t *data, ptrdiff_t length, sf_number *number) {
    number->count = 0;
    if (format == SF_FORMAT_MEAN)
        return read_pair(data, length, number);
    if (format == SF_FORMAT_MSGPACK)
        return read_msgpack(data, length, number);
    uint64_t bits = length == 8 ? read_bits(data, 8) : 0;
    number->kind = format == SF_FORMAT_DOUBLE ? SF_FLOAT : SF_INTEGER;
    memcpy(&number->integer, &bits, sizeof bits); /* either lies there */
    return length == 8 ? 0 : -1;
}

int sf_number_of(py_object *item, int takes_bool, sf_number *number) {
    py_object *type = sf_py.type_of(item);
    sf_py.drop(type); /* the object keeps it alive */
    if (type == sf_py.float_type) {
        *number = (sf_number){.kind = SF_FLOAT, .real = sf_py.float_value(item)};
        return 0;
    }
    if (type != sf_py.integer_type && !(takes_bool && type == sf_py.bool_type))
        return -1;
    int overflow = 0;
    *number = (sf_number){.kind = SF_INTEGER, .integer = sf_py.integer_value(item, &overflow)};
    return overflow ? -1 : 0;
}

py_object *sf_number_object(int format, const sf_number *number) {
    if (number->kind == SF_ABSENT)
        return sf_bytes_or_none(NULL, SF_NO_VALUE);
    if (format == SF_FORMAT_MEAN) {
        py_object *pair = sf_py.tuple_new(2), *count = sf_py.integer_new(number->count);
        py_object *sum = sf_number_object(SF_FORMAT_MSGPACK, number);
        if (pair != NULL && count != NULL && sum != NULL) { /* it takes them over */
            sf_py.tuple_set(pair, 0, count);
            sf_py.tuple_set(pair, 1, sum);
            return pair;
        }
        py_object *made[] = {pair, count, sum};
        for (int at = 0; at < 3; at++)
            if (made[at] != NULL)
                sf_py.drop(made[at]);
        return NULL;
    }
    return number->kind == SF_INTEGER ? sf_py.integer_new(number->integer) : sf_py.float_new(number->real);
}

int sf_number_add(sf_number *total, const sf_number *value) {
    if (total->kind == SF_INTEGER && value->kind == SF_INTEGER)
        return __builtin_add_overflow(total->integer, value->integer, &total->integer) ? -1 : 0;
    double one = total->kind == SF_INTEGER ? (double)total->integer : total->real;
    double two = value->kind == SF_INTEGER ? (double)value->integer : value->real;
    total->kind = SF_FLOAT;
    total->real = one + two;
    return 0;
}

#define EXACT ((int64_t)1 << 53)

int sf_number_choose(sf_number *one, const sf_number *two, int most) {
    int takes_one;
    if (one->kind == SF_INTEGER && two->kind == SF_INTEGER) {
        takes_one = most ? one->integer >= two->integer : one->integer <= two->integer;
    } else {
        const sf_number *both[2] = {one, two};
        double real[2];
        for (int at = 0; at < 2; at++) {
            int64_t integer = both[at]->kind == SF_INTEGER ? both[at]->integer : 0;
            if (integer > EXACT || integer < -EXACT)
                return -1;
            real[at] = both[at]->kind == SF_INTEGER ? (double)integer : both[at]->real;
            if (real[at] != real[at])
                return -1;
        }
        takes_one = most ? real[0] >= real[1] : real[0] <= real[1];
    }
    if (!takes_one)
        *one = *two;
    return 0;
}
