#include <stdlib.h>
#include <string.h>

#include "load.h"

/* In larger bodies, 8 bytes of each page are checked while the clock runs: reading a whole
 * body takes as long as copying it. */
#define SMALL 65536
#define PAGE 4096

/* The filler: bytes of a generator with a fixed seed, made once. */
static const uint8_t *filler(size_t size)
{
    static uint8_t *made;
    static size_t length;
    uint64_t x = 0x9E3779B97F4A7C15u;

    if (size <= length)
        return made;
    free(made);
    made = memory(size);
    length = size;
    for (size_t at = 0; at < size; at++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        made[at] = (uint8_t)(x >> 32);
    }
    return made;
}

void body_number(uint8_t *body, uint64_t number)
{
    memcpy(body, &number, sizeof(number));
}

void body_make(uint8_t *body, size_t size, uint64_t number)
{
    memcpy(body, filler(size), size);
    body_number(body, number);
}

static bool same(const uint8_t *body, const uint8_t *expected, size_t size, bool whole)
{
    if (whole || size <= SMALL)
        return !memcmp(body + 8, expected + 8, size - 8);
    for (size_t at = PAGE; at + 8 <= size; at += PAGE)
        if (memcmp(body + at, expected + at, 8))
            return false;
    return !memcmp(body + size - 8, expected + size - 8, 8);
}

void body_check(struct crew *crew, const uint8_t *body, size_t size)
{
    uint64_t number;

    if (size != crew->plan->size)
        fail("a body of %zu bytes came where %zu were sent", size, crew->plan->size);
    memcpy(&number, body, sizeof(number));
    if (!same(body, filler(size), size, crew->base == 0))
        fail("message %llu came with other bytes than were sent", (unsigned long long)number);
    ledger_see(&crew->ledger, number - crew->base);
}
