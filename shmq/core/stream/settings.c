#include "base/crc32c.h"
#include "stream/log.h"

/* ---- sizes ---- */

uint64_t shmq_log_most_entry(const struct shmq_log_options *o)
{
    return o->ring_bytes / 4 + SHMQ_ENTRY_HEAD + SHMQ_ENTRY_PRODUCER + SHMQ_ENTRY_SEEN + 8;
}

/* Room for the retained bytes, for one entry to be removed while another is added, and the pad. */
uint64_t shmq_log_ring_of(const struct shmq_log_options *o)
{
    uint64_t kept = o->durability == SHMQ_LOG_MEMORY && o->retention_bytes
                        ? o->retention_bytes + 2 * shmq_log_most_entry(o)
                        : 0;

    return shmq_page_up(kept > o->ring_bytes ? kept : o->ring_bytes);
}

void shmq_log_greatest(struct shmq_log_options *o)
{
    uint64_t most = o->ring_bytes * SHMQ_RING_GROWTH;

    if (most > SHMQ_MAX_GROWN_RING)
        most = SHMQ_MAX_GROWN_RING;
    if (o->ring_bytes < most)
        o->ring_bytes = most;
    o->retention_bytes = o->durability == SHMQ_LOG_MEMORY ? o->ring_bytes : 0;
}

/* ---- the stream's options ---- */

static uint32_t checksum(const struct shmq_log_options *o) { return shmq_crc32c(0, o, sizeof *o); }

bool shmq_stream_read(const struct shmq_stream *stream, struct shmq_log_options *options,
                      uint32_t *alterations)
{
    do {
        struct shmq_altered found;

        *alterations = GET_ACQUIRE(stream->alterations);
        if (!*alterations) {
            *options = stream->options;
            return true;
        }
        found = stream->altered[*alterations & 1];
        *options = found.options;
        if (found.crc == checksum(options) && options->stream_id == stream->options.stream_id)
            return true;
        shmq_read_fence();
    } while (*alterations != GET_ACQUIRE(stream->alterations)); /* two came in between */
    return false;
}

void shmq_stream_alter(struct shmq_stream *stream, const struct shmq_log_options *options)
{
    uint32_t next = GET_RELAXED(stream->alterations) + 1;
    struct shmq_altered *altered = &stream->altered[next & 1];

    SET(altered->options, *options);
    SET(altered->crc, checksum(options));
    SET_RELEASE(stream->alterations, next);
}

/* ---- a partition's settings ---- */

/* Stores the settings that are those of the options whatever was before. */
void shmq_log_set(struct shmq_log_settings *s, const struct shmq_log_options *o)
{
    bool durable = o->durability == SHMQ_LOG_JOURNAL; /* its files do the retention */

    SET_ATOMIC(s->most_entry, shmq_log_most_entry(o));
    SET_ATOMIC(s->retention_bytes, durable ? 0 : o->retention_bytes);
    SET_ATOMIC(s->retention, durable ? 0 : o->retention);
}
