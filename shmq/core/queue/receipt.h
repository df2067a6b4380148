/* Public receipts: sealed.
 *
 * A receipt is slot and serial, so two queues give the same ones, and so does a later queue of the
 * same name. Sealed with the queue's id it is valid for that one queue only: the seal is a keyed
 * bijection of 64 bits, alternating multiplications and shifts as in Stafford's variants of
 * MurmurHash3's finaliser. With another queue's id a receipt opens to a slot and a serial that are
 * practically random, and no message in flight has those. 0 stays 0, which is not a receipt. */
#pragma once

#include <stdint.h>

#define SHMQ_SEAL_ROUNDS 3

struct shmq_seal {
    uint64_t factors[SHMQ_SEAL_ROUNDS]; /* odd                                          */
    uint64_t inverses[SHMQ_SEAL_ROUNDS];
};

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static inline uint64_t shmq_next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/* The inverse of an odd number modulo 2^64, by Newton's iteration: at first 3 bits are right, and
 * twice as many after each step. */
static inline uint64_t shmq_inverse(uint64_t factor)
{
    uint64_t x = factor;

    for (int step = 0; step < 5; step++)
        x *= 2 - factor * x;
    return x;
}

static inline void shmq_seal_init(struct shmq_seal *seal, uint64_t queue_id)
{
    for (int i = 0; i < SHMQ_SEAL_ROUNDS; i++) {
        seal->factors[i] = shmq_next_random(&queue_id) | 1;
        seal->inverses[i] = shmq_inverse(seal->factors[i]);
    }
}

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
