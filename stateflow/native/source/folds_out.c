/* What folds.c has folded, as objects of Python. */
#include <stdlib.h>
#include <string.h>

#include "folds.h"

/* A new list of the numbers that the batch began with, None where there is none. */
SF_API py_object *sf_py_folds_numbers(const folds *own) {
    py_object *numbers = sf_py.list_new((ptrdiff_t)own->rows_count);
    for (size_t row = 0; numbers != NULL && row < own->rows_count; row++) {
        folded now = sf_folded_of(&own->young->entries[own->rows[row]]);
        py_object *number = sf_number_object(own->format, &now.number);
        if (number == NULL || sf_py.list_set(numbers, (ptrdiff_t)row, number) != 0) {
            sf_py.drop(numbers);
            return NULL;
        }
    }
    return numbers;
}

/* Put what was changed into the order of the keys; 0, or -1 when memory is used up. The rest of this file does it where
 * it was not done: by itself it needs no objects, so that others run meanwhile. */
SF_API int64_t sf_folds_order(folds *own) {
    if (own->sorted_count == own->changed_count)
        return 0;
    sf_item *ordered = sf_newest_order(own->young, own->changed, own->changed_count);
    if (ordered == NULL)
        return -1;
    for (size_t at = 0; at < own->changed_count; at++)
        own->changed[at] = ordered[at].index;
    own->sorted_count = own->changed_count;
    free(ordered);
    return 0;
}

/* Two lists of what was changed: keys, and numbers as objects or, where they are `encoded`, as bytes in the order of the
 * keys; None for what was deleted. */
SF_API py_object *sf_py_folds_rows(folds *own, int64_t encoded) {
    if (encoded && sf_folds_order(own) != 0)
        return sf_py.no_memory();
    py_object *columns = sf_two_lists((ptrdiff_t)own->changed_count);
    py_object *lists[2] = {columns ? sf_py.tuple_item(columns, 0) : NULL, columns ? sf_py.tuple_item(columns, 1) : NULL};
    for (size_t at = 0; columns != NULL && at < own->changed_count; at++) {
        const sf_entry *each = &own->young->entries[own->changed[at]];
        folded now = sf_folded_of(each);
        uint8_t data[SF_NUMBER_BYTES_MAX];
        py_object *beside = NULL;
        if (!encoded || now.number.kind == SF_ABSENT)
            beside = sf_number_object(own->format, &now.number);
        else
            beside = sf_py.bytes_new((const char *)data, sf_number_write(own->format, &now.number, data));
        if (sf_set_row(lists, (ptrdiff_t)at, each, beside) != 0) {
            sf_py.drop(columns);
            columns = NULL;
        }
    }
    return columns;
}

/* A new list of the windows that were opened since this was asked last: time and key, in this order. */
SF_API py_object *sf_py_folds_opened(folds *own) {
    py_object *opened = sf_py.list_new((ptrdiff_t)own->opened);
    int is_ordered = sf_folds_order(own) == 0;
    sf_item *items = is_ordered ? malloc((own->opened ? (size_t)own->opened : 1) * sizeof *items) : NULL;
    size_t count = 0;
    for (size_t at = 0; items != NULL && at < own->changed_count && count < (size_t)own->opened; at++) {
        const sf_entry *each = &own->young->entries[own->changed[at]];
        if (sf_folded_of(each).flags & IS_OPENED)
            items[count++] = (sf_item){(uint64_t)sf_window_of(each->key, (ptrdiff_t)each->key_length), own->changed[at], 0};
    }
    items = sf_newest_by_head(items, count);
    for (size_t at = 0; items != NULL && opened != NULL && at < count; at++) {
        const sf_entry *each = &own->young->entries[items[at].index];
        py_object *entry = sf_py.bytes_new(NULL, (ptrdiff_t)(sizeof items->head + each->key_length));
        char *data;
        ptrdiff_t length;
        if (entry == NULL || sf_py.bytes_view(entry, &data, &length) != 0) {
            sf_py.drop(opened);
            opened = NULL;
            break;
        }
        uint64_t time = sf_big_endian(items[at].head); /* nobody else has seen these bytes yet */
        memcpy(data, &time, sizeof time);
        memcpy(data + sizeof time, each->key, each->key_length);
        sf_py.list_set(opened, (ptrdiff_t)at, entry);
    }
    for (size_t at = 0; items != NULL && opened != NULL && at < count; at++) {
        const sf_entry *each = &own->young->entries[items[at].index];
        folded now = sf_folded_of(each);
        now.flags &= (uint8_t)~IS_OPENED;
        sf_folded_keep(each, &now);
    }
    if (items == NULL && opened != NULL) {
        sf_py.drop(opened);
        opened = sf_py.no_memory();
    }
    if (opened != NULL)
        own->opened = 0;
    free(items);
    return opened;
}
