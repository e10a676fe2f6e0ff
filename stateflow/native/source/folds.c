/* Numbers folded by key: what a count, a sum, a smallest or a largest one has come to, or what a number was set to last,
 * from one commit to the next.
 *
 * `young` has the numbers that were met lately, among them all that were changed since the last commit; `old` has those
 * from before, which are met again or forgotten. A key is looked for in both, and else on disk, before anything is folded
 * into it: so its number is known at any time, as if each record were folded by itself.
 *
 * What cannot be folded here (no number of Python's own, one that 62 bits do not hold, a NaN) refuses its whole batch,
 * and leaves everything as it was.
 *
 * Keys of windows end with the time at which their window begins. Of windows that begin at or after `known_from` no key
 * is on disk that is in neither table; those of which there was nothing are told, to be listed by their time.
 */
#include <stdlib.h>
#include <string.h>

#include "folds.h"

enum { COUNT, SUM, LEAST, MOST, ASSIGN, MEAN };

#define WINDOW_TAIL 12 /* bytes from the window's time on */
#define NEVER INT64_MAX
#define ENVELOPE_HEAD 0xff73667600 /* the first five bytes of eight */
static const int64_t TOO_LARGE = (int64_t)1 << 62;

folded sf_folded_of(const sf_entry *of) {
    folded own;
    memcpy(&own, of->key + of->key_length, sizeof own);
    return own;
}

void sf_folded_keep(const sf_entry *of, const folded *own) { memcpy(of->key + of->key_length, own, sizeof *own); }

SF_API void sf_folds_free(folds *own) {
    if (own->young != NULL)
        sf_newest_free(own->young);
    if (own->old != NULL)
        sf_newest_free(own->old);
    free(own->changed);
    free(own->rows);
    free(own->asked);
    free(own->undo);
    free(own->joined);
    free(own);
}

SF_API folds *sf_folds_new(uint64_t seed, int64_t operation, int64_t format, int64_t kinds, int64_t skips_none, int64_t of_windows) {
    folds *own = calloc(1, sizeof *own);
    if (own == NULL)
        return NULL;
    *own = (folds){.operation = (int)operation, .format = (int)format, .kinds = (int)kinds, .skips_none = (int)skips_none,
                   .of_windows = (int)of_windows, .known_from = NEVER, .young_latest = INT64_MIN, .old_latest = INT64_MIN};
    own->young = sf_newest_new(seed, (const uint8_t *)"", 0);
    own->old = sf_newest_new(seed, (const uint8_t *)"", 0); /* the same: what is hashed once is looked for in both */
    if (own->young == NULL || own->old == NULL) {
        sf_folds_free(own);
        return NULL;
    }
    return own;
}

SF_API int64_t sf_folds_changed(const folds *own) { return (int64_t)own->changed_count; }
SF_API int64_t sf_folds_opened(const folds *own) { return own->opened; }
SF_API int64_t sf_folds_bytes(const folds *own) { return sf_newest_bytes(own->young) + sf_newest_bytes(own->old); }

/* Forget everything, what was changed, too. */
SF_API void sf_folds_clear(folds *own) {
    sf_newest_clear(own->young);
    sf_newest_clear(own->old);
    own->changed_count = own->sorted_count = own->rows_count = own->asked_count = 0;
    own->opened = 0;
    own->known_from = NEVER;
    own->young_latest = own->old_latest = INT64_MIN;
}

/* Nothing is on disk of windows that begin then or later, as of now. */
SF_API void sf_folds_known_from(folds *own, int64_t from) { own->known_from = from; }

/* What was asked for and never told may be asked for again. */
static void forget_asked(folds *own) {
    for (size_t at = 0; at < own->asked_count; at++) {
        const sf_entry *each = &own->young->entries[own->asked[at]];
        folded now = sf_folded_of(each);
        now.flags &= (uint8_t)~IS_ASKED;
        sf_folded_keep(each, &now);
    }
    own->asked_count = 0;
}

static void forget_old(folds *own) {
    if (own->known_from != NEVER && own->old_latest >= own->known_from)
        own->known_from = own->old_latest + 1;
    own->old_latest = INT64_MIN;
    sf_newest_clear(own->old);
}

/* What was changed is on disk. At most `bytes_max` are remembered. */
SF_API void sf_folds_committed(folds *own, int64_t bytes_max) {
    forget_asked(own);
    own->rows_count = 0;
    for (size_t at = 0; at < own->changed_count; at++) {
        const sf_entry *each = &own->young->entries[own->changed[at]];
        folded now = sf_folded_of(each);
        now.flags = 0;
        sf_folded_keep(each, &now);
    }
    own->changed_count = own->sorted_count = 0;
    if (sf_newest_bytes(own->young) > bytes_max / 4) { /* growing, its table may come to take twice as much */
        forget_old(own);
        sf_newest *young = own->young;
        own->young = own->old;
        own->old = young;
        own->old_latest = own->young_latest;
        own->young_latest = INT64_MIN;
    }
    if (sf_folds_bytes(own) > bytes_max)
        forget_old(own);
    if (sf_folds_bytes(own) > bytes_max)
        sf_folds_clear(own);
}

/* From now on at most so much is remembered, beside what was changed. */
SF_API void sf_folds_limit(folds *own, int64_t bytes_max) {
    if (sf_folds_bytes(own) > bytes_max)
        forget_old(own);
    if (sf_folds_bytes(own) > bytes_max && own->changed_count == 0)
        sf_folds_clear(own);
}

/* --- a batch of keys ------------------------------------------------------------------------------------------- */

static int has_room(folds *own, size_t rows) {
    if (rows <= own->rows_max)
        return 1;
    uint32_t *of_rows = realloc(own->rows, rows * sizeof *of_rows);
    own->rows = of_rows ? of_rows : own->rows;
    uint32_t *asked = realloc(own->asked, rows * sizeof *asked);
    own->asked = asked ? asked : own->asked;
    undone *undo = realloc(own->undo, rows * sizeof *undo);
    own->undo = undo ? undo : own->undo;
    if (of_rows == NULL || asked == NULL || undo == NULL)
        return 0;
    own->rows_max = rows;
    return 1;
}

int64_t sf_window_of(const void *key, ptrdiff_t key_length) {
    uint64_t time;
    if (key_length < WINDOW_TAIL)
        return INT64_MIN;
    memcpy(&time, (const uint8_t *)key + key_length - WINDOW_TAIL, sizeof time);
    return (int64_t)sf_big_endian(time);
}

/* The place of a key in `young`, where it is from now on, with what is known of it; -1 when memory is used up. */
static int64_t met(folds *own, const sf_named *key) {
    sf_entry *found = sf_newest_hashed(own->young, key->hash, key->data, (uint32_t)key->length, sizeof(folded));
    if (found == NULL)
        return -1;
    if (found->value_length == SF_NO_VALUE) {
        folded now = {{.kind = UNKNOWN}, 0};
        int64_t window = own->of_windows ? sf_window_of(key->data, key->length) : INT64_MIN;
        const sf_entry *before = NULL; /* later windows than any of them need not be looked for there */
        if (!own->of_windows || window <= own->old_latest)
            before = sf_newest_find_hashed(own->old, key->hash, key->data, (uint32_t)key->length);
        if (before != NULL)
            now = sf_folded_of(before);
        else if (own->of_windows && window >= own->known_from)
            now.number.kind = SF_ABSENT;
        if (window > own->young_latest)
            own->young_latest = window;
        found->value_length = sizeof now;
        sf_folded_keep(found, &now);
    }
    return found - own->young->entries;
}

/* Put a suffix behind each of some keys; 0, or -1 when memory is used up. */
static int join(folds *own, sf_named *some, ptrdiff_t count, const char *suffix, ptrdiff_t suffix_length) {
    size_t wanted = 0;
    for (ptrdiff_t at = 0; at < count; at++)
        wanted += (size_t)(some[at].length + suffix_length);
    if (wanted > own->joined_max) {
        char *joined = realloc(own->joined, wanted * 2);
        if (joined == NULL)
            return -1;
        own->joined = joined;
        own->joined_max = wanted * 2;
    }
    char *into = own->joined;
    for (ptrdiff_t at = 0; at < count; at++) {
        memcpy(into, some[at].data, (size_t)some[at].length);
        memcpy(into + some[at].length, suffix, (size_t)suffix_length);
        some[at].data = into;
        some[at].length += suffix_length;
        into += some[at].length;
    }
    return 0;
}

/* Begin with a list of keys, a suffix behind each; a new list of those that must be looked for on disk, in order. */
SF_API py_object *sf_py_folds_begin(folds *own, py_object *keys, py_object *suffix) {
    ptrdiff_t rows = sf_py.list_size(keys), suffix_length;
    char *suffix_data;
    forget_asked(own);
    own->rows_count = 0;
    if (rows < 0 || sf_py.bytes_view(suffix, &suffix_data, &suffix_length) != 0)
        return NULL;
    if (!has_room(own, (size_t)rows))
        return sf_py.no_memory();
    sf_named some[AHEAD];
    for (ptrdiff_t first = 0; first < rows; first += AHEAD) {
        ptrdiff_t count = rows - first < AHEAD ? rows - first : AHEAD;
        for (ptrdiff_t at = 0; at < count; at++)
            if (sf_py.bytes_view(sf_py.list_item(keys, first + at), &some[at].data, &some[at].length) != 0)
                return NULL;
        if (suffix_length && join(own, some, count, suffix_data, suffix_length) != 0)
            return sf_py.no_memory();
        for (ptrdiff_t at = 0; at < count; at++)
            some[at].hash = sf_newest_hash(own->young, some[at].data, (uint32_t)some[at].length);
        sf_newest_fetch_ahead(own->young, some, count);
        for (ptrdiff_t at = 0; at < count; at++) {
            int64_t index = met(own, &some[at]);
            if (index < 0)
                return sf_py.no_memory();
            own->rows[own->rows_count++] = (uint32_t)index;
            const sf_entry *each = &own->young->entries[index];
            folded now = sf_folded_of(each);
            if (now.number.kind == UNKNOWN && !(now.flags & IS_ASKED)) {
                now.flags |= IS_ASKED;
                sf_folded_keep(each, &now);
                own->asked[own->asked_count++] = (uint32_t)index;
            }
        }
    }
    sf_item *ordered = sf_newest_order(own->young, own->asked, own->asked_count);
    if (ordered == NULL)
        return sf_py.no_memory();
    for (size_t at = 0; at < own->asked_count; at++)
        own->asked[at] = ordered[at].index;
    free(ordered);
    py_object *unknown = sf_py.list_new((ptrdiff_t)own->asked_count);
    for (size_t at = 0; unknown != NULL && at < own->asked_count; at++) {
        const sf_entry *each = &own->young->entries[own->asked[at]];
        py_object *key = sf_py.bytes_new((const char *)each->key, each->key_length);
        if (key == NULL || sf_py.list_set(unknown, (ptrdiff_t)at, key) != 0) {
            sf_py.drop(unknown);
            return NULL;
        }
    }
    return unknown;
}

/* What is on disk of the keys that sf_py_folds_begin has given, None for nothing; 1 if one is nothing to be folded here. */
SF_API int64_t sf_py_folds_learn(folds *own, py_object *values) {
    if (sf_py.list_size(values) != (ptrdiff_t)own->asked_count)
        return 1;
    int64_t refused = 0;
    for (size_t at = 0; at < own->asked_count; at++) {
        const sf_entry *each = &own->young->entries[own->asked[at]];
        py_object *value = sf_py.list_item(values, (ptrdiff_t)at);
        folded now = {{.kind = SF_ABSENT}, 0};
        char *data;
        ptrdiff_t length;
        if (value != sf_py.none) {
            if (sf_py.bytes_view(value, &data, &length) != 0)
                return -1;
            if (sf_number_read(own->format, (const uint8_t *)data, length, &now.number) != 0 ||
                !(own->kinds & 1 << now.number.kind)) {
                now.number.kind = UNKNOWN;
                refused = 1;
            }
        }
        sf_folded_keep(each, &now);
    }
    own->asked_count = 0;
    return refused;
}

/* --- folding --------------------------------------------------------------------------------------------------- */

static int is_kept(const folds *own, const sf_number *number) {
    if (number->kind == SF_INTEGER)
        return own->kinds & 1 << SF_INTEGER && number->integer > -TOO_LARGE && number->integer < TOO_LARGE;
    return own->kinds & 1 << SF_FLOAT && number->real > -(double)TOO_LARGE && number->real < (double)TOO_LARGE;
}

/* What a number is set to; -1 for what is none, or of another kind, and where its bytes would begin as an envelope does
 * (MAGIC in codec/evolving.py), which this does not write. */
static int assign(const folds *own, sf_number *number, py_object *item) {
    if (item == sf_py.none) {
        number->kind = SF_ABSENT;
        return 0;
    }
    if (sf_number_of(item, 0, number) != 0 || !(own->kinds & 1 << number->kind))
        return -1;
    uint64_t bits;
    memcpy(&bits, &number->integer, sizeof bits); /* either lies there */
    return bits >> 24 == ENVELOPE_HEAD ? -1 : 0;
}

/* What a number becomes with one more value; -1 where that cannot be told here. */
static int fold_one(const folds *own, sf_number *number, py_object *item) {
    if (own->operation == ASSIGN)
        return assign(own, number, item);
    static const sf_number NOTHING = {.kind = SF_INTEGER, .integer = 0}, ONE = {.kind = SF_INTEGER, .integer = 1};
    sf_number value = ONE;
    int adds = own->operation == COUNT || own->operation == SUM || own->operation == MEAN;
    if (number->kind == SF_ABSENT && adds)
        *number = NOTHING;
    if (own->operation != COUNT) {
        if (item == sf_py.none)
            return own->skips_none ? 0 : -1;
        if (sf_number_of(item, adds, &value) != 0)
            return -1;
    }
    if (own->operation == MEAN && ++number->count == 0)
        return -1;
    if (adds)
        return sf_number_add(number, &value) != 0 || !is_kept(own, number) ? -1 : 0;
    if (!is_kept(own, &value))
        return -1;
    if (number->kind != SF_ABSENT)
        return sf_number_choose(number, &value, own->operation == MOST);
    *number = value;
    return 0;
}

/* Change a row's number, and note what it was; -1 when memory is used up. */
static int change(folds *own, size_t row, const folded *before, const sf_number *number) {
    const sf_entry *each = &own->young->entries[own->rows[row]];
    own->undo[row] = (undone){own->rows[row], *before};
    folded now = {*number, before->flags | IS_CHANGED};
    if (!(before->flags & IS_CHANGED)) {
        if (own->changed_count == own->changed_max) {
            size_t wanted = own->changed_max ? own->changed_max * 2 : 256;
            uint32_t *changed = realloc(own->changed, wanted * sizeof *changed);
            if (changed == NULL)
                return -1;
            own->changed = changed;
            own->changed_max = wanted;
        }
        own->changed[own->changed_count++] = own->rows[row];
        own->sorted_count = 0;
    }
    if (own->of_windows && before->number.kind == SF_ABSENT && number->kind != SF_ABSENT && !(now.flags & IS_OPENED)) {
        now.flags |= IS_OPENED;
        own->opened++;
    }
    sf_folded_keep(each, &now);
    return 0;
}

static void take_back(folds *own, size_t rows, size_t changed_count, int64_t opened) {
    while (rows-- > 0)
        sf_folded_keep(&own->young->entries[own->undo[rows].index], &own->undo[rows].before);
    own->changed_count = changed_count;
    own->opened = opened;
}

/* Fold a value into the number of each key that the batch began with, all of which are known; the values of a count do
 * not matter. Told: how many numbers were not changed before, and the bytes of their keys. 0; 1 when it is refused and
 * nothing has changed; -1 with an error set. */
SF_API int64_t sf_py_folds_add(folds *own, py_object *values, int64_t told[2]) {
    size_t changed_before = own->changed_count;
    int64_t opened_before = own->opened;
    told[0] = told[1] = 0;
    if (own->operation != COUNT && sf_py.list_size(values) != (ptrdiff_t)own->rows_count)
        return 1;
    for (size_t row = 0; row < own->rows_count; row++) {
        folded before = sf_folded_of(&own->young->entries[own->rows[row]]);
        sf_number number = before.number;
        py_object *item = own->operation == COUNT ? NULL : sf_py.list_item(values, (ptrdiff_t)row);
        int refused = number.kind == UNKNOWN || fold_one(own, &number, item) != 0;
        if (refused || change(own, row, &before, &number) != 0) {
            take_back(own, row, changed_before, opened_before);
            if (!refused)
                sf_py.no_memory();
            return refused ? 1 : -1;
        }
    }
    told[0] = (int64_t)(own->changed_count - changed_before);
    for (size_t at = changed_before; at < own->changed_count; at++)
        told[1] += own->young->entries[own->changed[at]].key_length;
    return 0;
}

/* Delete the numbers that the batch began with. Told, and returned, as above. */
SF_API int64_t sf_folds_delete(folds *own, int64_t told[2]) {
    static const sf_number GONE = {.kind = SF_ABSENT};
    size_t changed_before = own->changed_count;
    told[0] = told[1] = 0;
    for (size_t row = 0; row < own->rows_count; row++) {
        folded before = sf_folded_of(&own->young->entries[own->rows[row]]);
        own->opened -= (before.flags & IS_OPENED) != 0;
        before.flags &= (uint8_t)~IS_OPENED;
        if (change(own, row, &before, &GONE) != 0)
            return -1;
    }
    told[0] = (int64_t)(own->changed_count - changed_before);
    for (size_t at = changed_before; at < own->changed_count; at++)
        told[1] += own->young->entries[own->changed[at]].key_length;
    return 0;
}
