#include "queue/failures.h"

#include "base/msgpack.h"
#include "queue/last_error.h"
#include "queue/segment.h"

/* The name, without its beginning if that is too long for an entry: the class is at its end. */
static struct shmq_text fit(struct shmq_text name)
{
    const unsigned char *end = name.at + name.bytes;
    uint32_t most = sizeof(((struct shmq_failure_type *)0)->name);

    if (name.bytes <= most)
        return name;
    name.at = end - most;
    while (name.at < end && (*name.at & 0xC0) == 0x80) /* the rest of a character */
        name.at++;
    return (struct shmq_text){name.at, (uint32_t)(end - name.at)};
}

bool shmq_failures_of(const struct shmq_queue *q, uint32_t at, struct shmq_text *name,
                      uint64_t *count)
{
    const struct shmq_failure_type *type = &q->failures[at];

    if (at >= q->h->failure_types || at >= SHMQ_FAILURE_TYPES)
        return false;
    *name = (struct shmq_text){(const unsigned char *)type->name, type->bytes};
    *count = type->count;
    return name->bytes <= sizeof type->name && shmq_is_utf8(name->at, name->bytes);
}

/* The entry of the type; NULL if it has none. */
static struct shmq_failure_type *find(const struct shmq_queue *q, struct shmq_text type)
{
    struct shmq_text name;
    uint64_t count;

    for (uint32_t at = 0; at < q->h->failure_types && at < SHMQ_FAILURE_TYPES; at++)
        if (shmq_failures_of(q, at, &name, &count) && name.bytes == type.bytes &&
            (!name.bytes || !memcmp(name.at, type.at, name.bytes)))
            return &q->failures[at];
    return NULL;
}

/* A new entry; NULL if there is none left, or no memory for them. */
static struct shmq_failure_type *add(struct shmq_queue *q, struct shmq_text type)
{
    uint32_t at = q->h->failure_types;
    struct shmq_failure_type *entry = &q->failures[at];

    if (at >= SHMQ_FAILURE_TYPES ||
        (!at && shmq_back(q, q->geo.failures, SHMQ_FAILURE_TYPES * sizeof *entry)))
        return NULL;
    if (type.bytes)
        memcpy(entry->name, type.at, type.bytes);
    shmq_mark();
    SET(entry->bytes, (uint8_t)type.bytes);
    SET(entry->count, 0);
    SET(q->h->failure_types, at + 1);
    return entry;
}

void shmq_count_failure(struct shmq_queue *q, struct shmq_text error)
{
    struct shmq_text type = fit(shmq_error_type(error));
    struct shmq_failure_type *entry;

    SET(q->h->failed, q->h->failed + 1);
    if ((entry = find(q, type)) || (entry = add(q, type)))
        SET(entry->count, entry->count + 1);
}
