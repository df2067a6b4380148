#include "base/siphash.h"

#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static inline void turn(struct state *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    turn(s);
    turn(s);
    s->v0 ^= word;
}

static inline uint64_t squeeze(struct state *s)
{
    turn(s);
    turn(s);
    turn(s);
    turn(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

static inline uint64_t hash_first(struct state *s, uint64_t key, const unsigned char *at,
                                  size_t size)
{
    uint64_t second = ~key, word;
    size_t left;

    *s = (struct state){key ^ 0x736f6d6570736575ull, second ^ 0x646f72616e646f6dull ^ 0xee,
                        key ^ 0x6c7967656e657261ull, second ^ 0x7465646279746573ull};
    for (left = size; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        absorb(s, word);
    }
    word = 0;
    memcpy(&word, at, left);
    absorb(s, word | (uint64_t)size << 56);
    s->v2 ^= 0xee;
    return squeeze(s);
}

uint64_t shmq_siphash_first(uint64_t key, const void *bytes, size_t size)
{
    struct state s;

    return hash_first(&s, key, bytes, size);
}

void shmq_siphash(uint64_t key, const void *bytes, size_t size, uint64_t hash[2])
{
    struct state s;

    hash[0] = hash_first(&s, key, bytes, size);
    s.v1 ^= 0xdd;
    hash[1] = squeeze(&s);
}
