#include "stream/log.h"

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
