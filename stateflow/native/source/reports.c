/* Reports of deliveries, of which librdkafka makes one per record, when it is polled or flushed.
 *
 * The Python client's own takes Python's lock for each, if only to find that a record of the core's has no callback: so
 * whoever polls stood in line with all other threads, once per record. These are passed over here, and those of records
 * that Python has sent go on to it. What became of a record of the core's was told before, by sending.c's interceptor.
 *
 * It is put in by librdkafka's public functions, while a client is being made: of the settings that it is made of, the
 * report is replaced. Should these not be the client's, or not tell what they have, all stays as the Python client has it.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "client.h"

#define POINTER_TEXT 32
#define HEXADECIMAL 16

static _Atomic(sf_reported_f) of_python; /* one function, of all producers of the process */
static atomic_llong passed_over;

static void reported(void *client, const sf_message *of, void *own) {
    if (of->own != NULL)
        atomic_load_explicit(&of_python, memory_order_acquire)(client, of, own);
    else
        atomic_fetch_add_explicit(&passed_over, 1, memory_order_relaxed);
}

void sf_reports_take(void *settings) {
    char text[POINTER_TEXT];
    size_t size = sizeof text;
    if (sf_rd.setting(settings, "dr_msg_cb", text, &size) != 0)
        return;
    sf_reported_f found = (sf_reported_f)(uintptr_t)strtoull(text, NULL, HEXADECIMAL);
    if (found == NULL || found == reported)
        return;
    sf_reported_f known = NULL;
    if (atomic_compare_exchange_strong(&of_python, &known, found) || known == found)
        sf_rd.set_reported(settings, reported);
}

/* How many reports were passed over in this process. */
SF_API int64_t sf_reports_passed_over(void) { return atomic_load_explicit(&passed_over, memory_order_relaxed); }
