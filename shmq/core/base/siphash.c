#include "base/siphash.h"

#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void rounds(struct state *s, int count)
{
    while (count--) {
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
}

static void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    rounds(s, 2);
    s->v0 ^= word;
}

static uint64_t squeeze(struct state *s)
{
    rounds(s, 4);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

void shmq_siphash(uint64_t key, const void *bytes, size_t size, uint64_t hash[2])
{
    const unsigned char *at = bytes;
    uint64_t second = ~key, word;
    struct state s = {key ^ 0x736f6d6570736575ull, second ^ 0x646f72616e646f6dull ^ 0xee,
                      key ^ 0x6c7967656e657261ull, second ^ 0x7465646279746573ull};
    size_t left;

    for (left = size; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        absorb(&s, word);
    }
    word = 0;
    memcpy(&word, at, left);
    absorb(&s, word | (uint64_t)size << 56);
    s.v2 ^= 0xee;
    hash[0] = squeeze(&s);
    s.v1 ^= 0xdd;
    hash[1] = squeeze(&s);
}
