/* The core as a plugin of librdkafka, which is how it comes by the clients that Python makes.
 *
 * A client's handle is not taken out of the Python client's memory: with the setting `plugin.library.paths` librdkafka
 * calls `conf_init` here, and then `client_made` with the handle of each client that it makes with that setting.
 */
#include "client.h"

#define PRODUCER 0 /* RD_KAFKA_PRODUCER */

sf_client_functions sf_rd;

static _Thread_local void *newest_client;
static _Thread_local sf_sends *newest_sends;

static int client_made(void *client, const void *settings, void *own, char *error, size_t error_size) {
    (void)own, (void)error, (void)error_size;
    newest_client = client;
    newest_sends = sf_rd.client_type(client) == PRODUCER ? sf_sends_new(client) : NULL;
    if (newest_sends != NULL)
        sf_reports_take((void *)settings); /* they are the client's own, which is being made of them */
    return 0;
}

/* Called by librdkafka when it loads its plugin. */
SF_API int conf_init(void *settings, void **own, char *error, size_t error_size) {
    (void)own, (void)error, (void)error_size;
    return sf_rd.add_client_made == NULL ? -1 : sf_rd.add_client_made(settings, SF_PLUGIN, client_made, NULL);
}

SF_API void sf_client_begin(void *const *functions) { sf_rd = *(const sf_client_functions *)functions; }

/* The client that this thread made last, once; NULL if it made none with the plugin. */
SF_API void *sf_client_made(void) {
    void *client = newest_client;
    newest_client = NULL;
    return client;
}

/* What is sent through the producer that this thread made last, once: to be closed. NULL if it made none. */
SF_API void *sf_sends_made(void) {
    void *sends = newest_sends;
    newest_sends = NULL;
    newest_client = NULL;
    return sends;
}
