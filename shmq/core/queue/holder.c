#include "queue/holder.h"

#include <string.h>

#include "base/clock.h"
#include "base/siphash.h"
#include "queue/segment.h"
#include "queue/transition.h"

uint64_t shmq_hash_name(const struct shmq_queue *q, const void *name, size_t bytes)
{
    uint64_t hash = shmq_siphash_first(q->h->options.hash_key, name, bytes);

    return hash ? hash : 1;
}

static uint32_t find(const struct shmq_queue *q, uint64_t hash)
{
    if (!q->h->holders_backed)
        return SHMQ_NIL;
    for (uint32_t at = 0; at < SHMQ_HOLDERS; at++)
        if (q->holders[at].hash == hash)
            return at;
    return SHMQ_NIL;
}

/* An entry that is free, or that of the oldest claim without leases. */
static uint32_t find_room(struct shmq_queue *q)
{
    uint32_t oldest = SHMQ_NIL;

    for (uint32_t at = 0; at < SHMQ_HOLDERS; at++) {
        const struct shmq_holder *holder = &q->holders[at];

        if (!holder->hash)
            return at;
        if (!holder->leases && (oldest == SHMQ_NIL || holder->since < q->holders[oldest].since))
            oldest = at;
    }
    return oldest;
}

/* The hash first: without it nobody is named, and a death leaves the entry free. */
static void free_entry(struct shmq_holder *holder)
{
    SET(holder->hash, 0);
    SET(holder->generation, (uint16_t)(holder->generation + 1));
    SET(holder->leases, 0);
    SET(holder->token, 0);
}

/* Ensures: there is an entry, which has the name. */
static int ensure_entry(struct shmq_queue *q, uint64_t hash, const char *name, size_t bytes,
                        struct shmq_holder **holder)
{
    uint32_t at = find(q, hash);
    int status;

    if (!q->h->holders_backed) {
        if ((status = shmq_back(q, q->geo.holders, SHMQ_PAGE)))
            return status;
        SET(q->h->holders_backed, 1);
    }
    if (at == SHMQ_NIL) {
        if ((at = find_room(q)) == SHMQ_NIL)
            return SHMQ_CROWDED;
        free_entry(&q->holders[at]);
        memset(q->holders[at].name, 0, sizeof q->holders[at].name);
        memcpy(q->holders[at].name, name,
               bytes < sizeof q->holders[at].name ? bytes : sizeof q->holders[at].name - 1);
        shmq_mark();
    }
    *holder = &q->holders[at];
    return SHMQ_OK;
}

int shmq_claim_name(struct shmq_queue *q, uint64_t hash, const char *name, size_t bytes,
                    struct shmq_claim *claim)
{
    struct shmq_holder *holder;
    int64_t wall = shmq_wall();
    int status = ensure_entry(q, hash, name, bytes, &holder);

    if (status)
        return shmq_outcome(q, status);
    claim->hash = hash;
    claim->token = (uint64_t)wall > holder->token ? (uint64_t)wall : holder->token + 1;
    /* The token first: if this process dies in between, the older claim can take nothing more, and
     * the next claim makes void what it has. */
    SET(holder->token, claim->token);
    SET(holder->serial, shmq_next_serial(q->h));
    SET(holder->since, wall);
    SET(holder->hash, hash);
    return shmq_outcome(q, SHMQ_OK);
}

uint32_t shmq_holder_of(const struct shmq_queue *q, const struct shmq_claim *claim, bool *known)
{
    uint32_t at = find(q, claim->hash);

    *known = at != SHMQ_NIL;
    return *known && q->holders[at].token == claim->token ? at : SHMQ_NIL;
}

void shmq_forget_name(struct shmq_queue *q, const struct shmq_claim *claim)
{
    bool known;
    uint32_t at = shmq_holder_of(q, claim, &known);

    if (at != SHMQ_NIL)
        free_entry(&q->holders[at]);
}

void shmq_tag(struct shmq_queue *q, struct shmq_slot *s, uint32_t holder, uint32_t epoch)
{
    if (shmq_is_tagged_by(q, s, holder) && s->epoch == epoch)
        return;
    shmq_untag(s);
    SET_ATOMIC(s->holder, (uint8_t)(holder + 1));
    SET_ATOMIC(s->generation, q->holders[holder].generation);
    SET_ATOMIC(s->epoch, epoch);
    SET_ATOMIC(s->lane, (uint8_t)(s->lane | SHMQ_TAGGED));
}

struct shmq_holder *shmq_holder_at(struct shmq_queue *q, const struct shmq_slot *s)
{
    uint32_t at = s->holder - 1u;

    if (s->owner != SHMQ_BY_NAME || at >= SHMQ_HOLDERS || !q->h->holders_backed ||
        !q->holders[at].hash || !shmq_is_tagged_by(q, s, at))
        return NULL;
    return &q->holders[at];
}

/* Serials begin anywhere and go round: one that is up to half a round behind is older. */
bool shmq_is_fenced(struct shmq_queue *q, const struct shmq_slot *s, uint64_t word)
{
    const struct shmq_holder *holder = shmq_holder_at(q, s);
    uint64_t since = holder ? (shmq_serial_of(word) - holder->serial) & SHMQ_SERIAL_MAX : 0;

    return !since || since > SHMQ_SERIAL_MAX / 2;
}
