/* Public receipts: sealed.
 *
 * A receipt is slot and serial, so two queues give the same ones, and so does a later queue of the
 * same name. Sealed with the queue's id it is valid for that one queue only: the seal is a keyed
 * bijection of 64 bits, alternating multiplications and shifts as in Stafford's variants of
 * MurmurHash3's finaliser. With another queue's id a receipt opens to a slot and a serial that are
 * practically random, and no message in flight has those. 0 stays 0, which is no receipt. */
#ifndef SHMQ_QUEUE_RECEIPT_H
#define SHMQ_QUEUE_RECEIPT_H

#include <stdint.h>

#define SHMQ_SEAL_ROUNDS 3

struct shmq_seal {
    uint64_t factors[SHMQ_SEAL_ROUNDS]; /* odd                                          */
    uint64_t inverses[SHMQ_SEAL_ROUNDS];
};

void shmq_seal_init(struct shmq_seal *seal, uint64_t queue_id);

static inline uint64_t shmq_seal(const struct shmq_seal *seal, uint64_t receipt)
{
    receipt *= seal->factors[0];
    receipt ^= receipt >> 32;
    receipt *= seal->factors[1];
    receipt ^= receipt >> 32;
    return receipt * seal->factors[2];
}

static inline uint64_t shmq_unseal(const struct shmq_seal *seal, uint64_t sealed)
{
    sealed *= seal->inverses[2];
    sealed ^= sealed >> 32;
    sealed *= seal->inverses[1];
    sealed ^= sealed >> 32;
    return sealed * seal->inverses[0];
}

#endif
