/* What the core is, and the functions of CPython that it was given. */
#include <string.h>

#include "core.h"

sf_python sf_py;

SF_API int64_t sf_abi(void) { return SF_ABI; }

/* Take the functions of the interpreter that loads the core, its None and its types of numbers. */
SF_API void sf_py_begin(void *const *functions) { sf_py = *(const sf_python *)functions; }

py_object *sf_bytes_or_none(const void *data, int64_t length) {
    if (length < 0) {
        sf_py.take(sf_py.none);
        return sf_py.none;
    }
    return sf_py.bytes_new(data, (ptrdiff_t)length);
}

uint64_t sf_big_endian(uint64_t number) {
    uint8_t bytes[8];
    for (int at = 0; at < 8; at++)
        bytes[at] = (uint8_t)(number >> (56 - 8 * at));
    memcpy(&number, bytes, sizeof number);
    return number;
}
