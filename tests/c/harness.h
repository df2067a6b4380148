/* What every test program is made of: TEST("a sentence") { ... }, CHECK, and a main that
 * runs the tests in the order of the file, each under a watchdog. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef void test_body(void);

void test_add(const char *sentence, test_body *body);
_Noreturn void test_failed(const char *file, int line, const char *what);
_Noreturn void test_differs(const char *file, int line, const char *what, int64_t got,
                            int64_t wanted);

#define TEST(sentence) TEST_NUMBERED(sentence, __COUNTER__)
#define TEST_NUMBERED(sentence, number) TEST_NAMED(sentence, number)
#define TEST_NAMED(sentence, number)                                 \
    static void test_##number(void);                                 \
    __attribute__((constructor)) static void add_test_##number(void) \
    {                                                                \
        test_add(sentence, test_##number);                           \
    }                                                                \
    static void test_##number(void)

#define CHECK(condition)                                 \
    do {                                                 \
        if (!(condition))                                \
            test_failed(__FILE__, __LINE__, #condition); \
    } while (0)

#define CHECK_EQ(got, wanted)                                                     \
    do {                                                                          \
        int64_t got_ = (int64_t)(got), wanted_ = (int64_t)(wanted);               \
        if (got_ != wanted_)                                                      \
            test_differs(__FILE__, __LINE__, #got " == " #wanted, got_, wanted_); \
    } while (0)

/* Fails with what shmq_check has to say. */
#define CHECK_WELL(q)                                \
    do {                                             \
        const char *wrong_ = shmq_check(q);          \
        if (wrong_)                                  \
            test_failed(__FILE__, __LINE__, wrong_); \
    } while (0)

/* Called after each test: see fixture.c. */
void release_everything(void);

/* A reproducible source of chance (xorshift64). */
struct chance {
    uint64_t state;
};

/* The environment's SHMQ_SEED if it is set, else `seed`; says which. */
uint64_t seed_or(uint64_t seed);

struct chance chance_from(uint64_t seed);

/* Of seed_or(seed). */
struct chance chance_of(uint64_t seed);
uint64_t chance_next(struct chance *chance);
uint64_t chance_below(struct chance *chance, uint64_t limit);
