/* Named holders: leases that belong to a name, such as that of a query, and not to a process.
 *
 * Who acts for the name makes a claim, and shows its token with each operation. A newer claim fences
 * the older ones at once: their tokens are refused, and the receipts of the leases that were taken
 * before it settle and extend nothing. No process has to be found alive or dead for that.
 *
 * A run that is leased in a name has a number there, its epoch. Each of its messages keeps a tag,
 * holder and epoch, in its slot. The tag outlives the lease, until the message is settled, or is
 * leased in another run: so the very same messages can be leased again. */
#pragma once

#include "queue/queue.h"

/* What is shown to act for a name. */
struct shmq_claim {
    uint64_t hash; /* of the name: shmq_hash_name                                          */
    uint64_t token;
};

/* Not 0. */
uint64_t shmq_hash_name(const struct shmq_queue *q, const void *name, size_t bytes);

/* Makes a new claim of the name, whose bytes are for display: SHMQ_OK; SHMQ_CROWDED: as many names as
 * fit hold leases; SHMQ_NO_SPACE. Holds both locks. */
int shmq_claim_name(struct shmq_queue *q, uint64_t hash, const char *name, size_t bytes,
                    struct shmq_claim *claim);

/* The entry of the claim's holder, or SHMQ_NIL if the claim is void. `known`: the name has an entry,
 * so there is a newer claim. Holds a lock. */
uint32_t shmq_holder_of(const struct shmq_queue *q, const struct shmq_claim *claim, bool *known);

/* Frees the claim's entry: its tags name nobody. Its leases, if any, can then be settled by nobody,
 * and end in time. Holds the get-side lock. */
void shmq_forget_name(struct shmq_queue *q, const struct shmq_claim *claim);

/* Whether the slot has the tag of that holder. */
static inline bool shmq_is_tagged_by(const struct shmq_queue *q, const struct shmq_slot *s,
                                     uint32_t holder)
{
    return GET_ATOMIC(s->lane) & SHMQ_TAGGED && GET_ATOMIC(s->holder) == holder + 1 &&
           GET_ATOMIC(s->generation) == q->holders[holder].generation;
}

/* Removes the tag. */
static inline void shmq_untag(struct shmq_slot *s)
{
    SET_ATOMIC(s->lane, (uint8_t)(s->lane & ~SHMQ_TAGGED));
}

/* Ensures: the slot has this tag. A death on the way from another one leaves none; a message that has
 * the tag already keeps it. */
void shmq_tag(struct shmq_queue *q, struct shmq_slot *s, uint32_t holder, uint32_t epoch);

/* The holder of the slot's lease, or NULL if none is named, or known. */
struct shmq_holder *shmq_holder_at(struct shmq_queue *q, const struct shmq_slot *s);

/* Whether a lease of that word, which a named holder has, is void. */
bool shmq_is_fenced(struct shmq_queue *q, const struct shmq_slot *s, uint64_t word);
