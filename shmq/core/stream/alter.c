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

/* ---- a partition ---- */

/* Stores the settings that are those of the options whatever was before. */
void shmq_log_set(struct shmq_log_settings *s, const struct shmq_log_options *o)
{
    bool durable = o->durability == SHMQ_LOG_JOURNAL; /* its files do the retention */

    SET_ATOMIC(s->most_entry, shmq_log_most_entry(o));
    SET_ATOMIC(s->retention_bytes, durable ? 0 : o->retention_bytes);
    SET_ATOMIC(s->retention, durable ? 0 : o->retention);
}

/* Whether a loan is in that half. A borrower may write there at any time. */
static bool is_lent_in(const struct shmq_log *log, uint64_t place)
{
    struct shmq_log_place lent = shmq_log_lent(log);

    return lent.bytes && lent.at >= place && lent.at < place + log->half;
}

/* Decides where a ring of that many bytes is. Once a ring has wrapped, nothing that can be read is
 * in the other half: that has positions before its beginning. False: not yet. */
static bool grow(const struct shmq_log *log, uint64_t bytes, struct shmq_ring *ring,
                 struct shmq_ring *former)
{
    uint64_t committed = shmq_log_committed(log), other = log->half - ring->place;

    if (bytes <= ring->bytes)
        return true;
    if (bytes > log->half)
        return false;
    if (committed - ring->begin > ring->bytes) {
        if (shmq_log_oldest(log) < ring->begin || is_lent_in(log, other))
            return false;
        *former = *ring;
        ring->begin = committed;
        ring->place = other;
    }
    ring->bytes = bytes;
    return true;
}

static void store(struct shmq_ring *to, const struct shmq_ring *ring)
{
    SET_ATOMIC(to->begin, ring->begin);
    SET_ATOMIC(to->place, ring->place);
    SET_ATOMIC(to->bytes, ring->bytes);
}

void shmq_log_apply(struct shmq_log *log)
{
    struct shmq_log_header *h = log->h;
    uint32_t made = GET_RELAXED(h->settings_made), alterations;
    const struct shmq_log_settings *now = &h->settings[made & 1];
    struct shmq_log_settings *next = &h->settings[(made + 1) & 1];
    struct shmq_ring ring = now->ring, former = now->former;
    struct shmq_log_options wanted;

    if (!log->stream || !shmq_stream_read(log->stream, &wanted, &alterations))
        return;
    if (now->alterations != alterations) {
        if (!grow(log, shmq_log_ring_of(&wanted), &ring, &former))
            return;
        SET(h->reach, 0);
        store(&next->ring, &ring);
        store(&next->former, &former);
        shmq_log_set(next, &wanted);
        SET(next->alterations, alterations);
        SET_RELEASE(h->settings_made, made + 1);
    }
    SET_RELAXED(h->applied, alterations);
}
