#include "stream/log.h"

static struct shmq_hold *hold_of(const struct shmq_log *log, uint32_t loaned)
{
    return &log->holds[(loaned - 1) % SHMQ_HOLDS];
}

/* Whether it is in the ring of that size at `ring`, or in the other half. */
static bool is_within(const struct shmq_log_place *place, uint64_t ring, uint64_t bytes,
                      uint64_t half)
{
    uint64_t begin = place->at < half ? 0 : half, size = begin == ring ? bytes : half;

    return place->at - begin < size && place->bytes <= size - (place->at - begin);
}

struct shmq_log_place shmq_log_lent(const struct shmq_log *log)
{
    uint32_t loaned = GET_RELAXED(log->h->loaned);
    struct shmq_log_place place = {0, 0};
    const struct shmq_ring *ring;
    const struct shmq_hold *hold;

    if (__builtin_expect(!loaned, 1))
        return place;
    hold = hold_of(log, loaned);
    ring = &shmq_log_settings(log)->ring;
    place.at = hold->place;
    place.bytes = hold->tag;
    if (GET_RELAXED(hold->kind) != SHMQ_HOLD_LOAN ||
        !is_within(&place, ring->place, ring->bytes, log->half) || place.bytes < SHMQ_ENTRY_HEAD ||
        (place.at | place.bytes) % 8)
        place.bytes = 0;
    return place;
}

void shmq_log_find_loan(struct shmq_log *log)
{
    uint32_t found = 0;

    for (uint32_t at = 0; at < SHMQ_HOLDS && at < GET_ATOMIC(log->h->holds_made); at++)
        if (GET_RELAXED(log->holds[at].kind) == SHMQ_HOLD_LOAN)
            found = at + 1;
    if (GET_RELAXED(log->h->loaned) != found) {
        SET_RELAXED(log->h->loaned, found);
    }
}

/* With retention_bytes, an append computes from positions how many bytes it keeps, which allows for
 * no skips. */
int shmq_log_lend(struct shmq_log *log, const struct shmq_log_piece *piece)
{
    struct shmq_log_spot spot = shmq_log_spot(log, shmq_log_committed(log));
    const struct shmq_log_item *item = piece->items;
    struct shmq_log_loan *loan = piece->loan;
    struct shmq_log_wrap wrap = {0, 0};
    const struct shmq_log_settings *now = shmq_log_settings(log);
    uint64_t size = shmq_entry_size(item->flags | SHMQ_E_SEEN, item->value_bytes, item->key_bytes,
                                    item->headers_bytes);
    int status;

    if (GET_RELAXED(log->h->sealed))
        return SHMQ_SEALED;
    if (GET_RELAXED(log->h->loaned) || now->retention_bytes)
        return SHMQ_BUSY;
    if (size > now->most_entry)
        return SHMQ_TOO_LARGE;
    if (size > spot.end - spot.at)
        shmq_log_pass(log, &spot, spot.end - spot.at);
    if (now->retention && shmq_log_is_stale(log))
        shmq_log_expire(log);
    if ((status = shmq_log_make_room(log, spot.position + size, &wrap)))
        return status;
    if (shmq_log_hold_at(log, SHMQ_HOLD_LOAN, loan->owner, size, spot.position, spot.at,
                         &loan->hold))
        return SHMQ_BUSY;
    SET_RELAXED(log->h->loaned, loan->hold + 1);
    loan->value = log->ring + spot.at + SHMQ_ENTRY_HEAD;
    return SHMQ_OK;
}

bool shmq_log_is_lent(const struct shmq_log *log, const struct shmq_log_loan *loan)
{
    struct shmq_log_place place = shmq_log_lent(log);

    return place.bytes && GET_RELAXED(log->h->loaned) == loan->hold + 1 &&
           loan->value == log->ring + place.at + SHMQ_ENTRY_HEAD;
}

void shmq_log_end_loan(struct shmq_log *log, const struct shmq_log_loan *loan)
{
    if (shmq_log_is_lent(log, loan))
        shmq_log_drop(log, loan->hold);
}
