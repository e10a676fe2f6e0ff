/* What the core is, and the functions of CPython that it was given. */
#include "core.h"

sf_python sf_py;

SF_API int64_t sf_abi(void) { return SF_ABI; }

/* Take the functions of the interpreter that loads the core, and its None. */
SF_API void sf_py_begin(void *const *functions) { sf_py = *(const sf_python *)functions; }

py_object *sf_bytes_or_none(const void *data, int64_t length) {
    if (length < 0) {
        sf_py.take(sf_py.none);
        return sf_py.none;
    }
    return sf_py.bytes_new(data, (ptrdiff_t)length);
}
