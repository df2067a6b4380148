#include "queue/receipt.h"

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/* The inverse of an odd number modulo 2^64, by Newton's iteration: at first 3 bits are right, and
 * twice as many after each step. */
static uint64_t inverse(uint64_t factor)
{
    uint64_t x = factor;

    for (int step = 0; step < 5; step++)
        x *= 2 - factor * x;
    return x;
}

void shmq_seal_init(struct shmq_seal *seal, uint64_t queue_id)
{
    for (int i = 0; i < SHMQ_SEAL_ROUNDS; i++) {
        seal->factors[i] = next_random(&queue_id) | 1;
        seal->inverses[i] = inverse(seal->factors[i]);
    }
}
