#define _GNU_SOURCE
#include "harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TESTS 64
#define WATCHDOG 120 /* s: a test that takes longer hangs; SIGALRM ends the program */

static struct {
    const char *sentence;
    test_body *body;
} tests[MOST_TESTS];

static int test_count;

void test_add(const char *sentence, test_body *body)
{
    if (test_count == MOST_TESTS)
        abort();
    tests[test_count].sentence = sentence;
    tests[test_count++].body = body;
}

void test_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    fflush(NULL);
    _exit(1);
}

void test_differs(const char *file, int line, const char *what, int64_t got, int64_t wanted)
{
    fprintf(stderr, "%s:%d: failed: %s: %" PRId64 ", not %" PRId64 "\n", file, line, what, got,
            wanted);
    fflush(NULL);
    _exit(1);
}

/* Runs all tests, or those whose sentences contain the argument. */
int main(int argc, char **argv)
{
    for (int i = 0; i < test_count; i++) {
        if (argc > 1 && !strstr(tests[i].sentence, argv[1]))
            continue;
        printf("  %s\n", tests[i].sentence);
        fflush(stdout);
        alarm(WATCHDOG);
        tests[i].body();
        release_everything();
        alarm(0);
    }
    return test_count ? 0 : 1;
}

uint64_t seed_or(uint64_t seed)
{
    const char *given = getenv("SHMQ_SEED");

    if (given)
        seed = strtoull(given, NULL, 0);
    printf("    SHMQ_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

struct chance chance_from(uint64_t seed)
{
    return (struct chance){(seed + 1) * 0x9E3779B97F4A7C15ull | 1};
}

struct chance chance_of(uint64_t seed) { return chance_from(seed_or(seed)); }

uint64_t chance_next(struct chance *chance)
{
    chance->state ^= chance->state << 13;
    chance->state ^= chance->state >> 7;
    chance->state ^= chance->state << 17;
    return chance->state;
}

uint64_t chance_below(struct chance *chance, uint64_t limit)
{
    return (chance_next(chance) >> 11) % limit;
}
