/* The native core: what its parts share. See ../loading.py for how it is loaded, and for what checks it.
 *
 * Plain C11 over malloc and memcpy. Nothing here includes the headers of Python or of librdkafka: their functions
 * are handed over when the library is loaded (functions of CPython's stable ABI, and of librdkafka's public one), so
 * that one build serves every version of both. Functions whose name begins with `sf_py_` are called with the
 * interpreter's lock held and deal in its objects; all others are called without it.
 */
#ifndef STATEFLOW_CORE_H
#define STATEFLOW_CORE_H

#include <stddef.h>
#include <stdint.h>

#define SF_ABI 7

#define SF_API __attribute__((visibility("default")))

typedef struct py_object py_object;

/* CPython's stable ABI, in the order of PYTHON_FUNCTIONS in ../library.py. */
typedef struct {
    int (*bytes_view)(py_object *, char **, ptrdiff_t *);
    py_object *(*bytes_new)(const char *, ptrdiff_t);
    py_object *(*text_new)(const char *);
    py_object *(*integer_new)(long long);
    ptrdiff_t (*list_size)(py_object *);
    py_object *(*list_item)(py_object *, ptrdiff_t);
    py_object *(*list_new)(ptrdiff_t);
    int (*list_set)(py_object *, ptrdiff_t, py_object *);
    py_object *(*tuple_new)(ptrdiff_t);
    int (*tuple_set)(py_object *, ptrdiff_t, py_object *);
    py_object *(*tuple_item)(py_object *, ptrdiff_t);
    void (*take)(py_object *);
    void (*drop)(py_object *);
    py_object *(*no_memory)(void);
    long long (*integer_value)(py_object *, int *overflow);
    double (*float_value)(py_object *);
    py_object *(*float_new)(double);
    py_object *(*type_of)(py_object *);
    py_object *(*error_is_set)(void);
    void *(*let_others_run)(void);
    void (*run_again)(void *held);
    py_object *none;
    py_object *integer_type;
    py_object *float_type;
    py_object *bool_type;
} sf_python;

extern sf_python sf_py;

/* A new reference to bytes, or to None where there are none; NULL with an error set. */
py_object *sf_bytes_or_none(const void *data, int64_t length);

/* A number in the other order of bytes. */
uint64_t sf_big_endian(uint64_t number);

/* The newest value of each key; newest.c. */
typedef struct sf_newest sf_newest;
#define SF_NO_VALUE (-1)
int sf_newest_put(sf_newest *newest, const void *key, uint32_t key_length, const void *value, int64_t value_length);

#endif
