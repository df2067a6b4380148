/* Random operations of every kind on queues of many kinds, each held against what the
 * slots and the ledger say, with every invariant verified after each. */
#include "actor.h"

#include <stdlib.h>

#define STEPS 12000

static void act(const struct shmq_options *options, uint64_t most_bytes, uint64_t groups,
                uint64_t seed)
{
    struct actor *a = actor_new(new_queue(options), chance_of(seed), most_bytes, groups);

    for (int step = 0; step < STEPS; step++)
        actor_step(a);
    free(a);
}

TEST("random operations on a queue with priorities")
{
    act(&(struct shmq_options){.capacity = 24,
                               .priorities = 16,
                               .policies[0].visibility = 10 * SECOND},
        800, 0, 11);
}

TEST("random operations on a queue with few groups")
{
    act(&(struct shmq_options){.capacity = 40, .policies[0].visibility = 10 * SECOND}, 200, 3, 12);
}

TEST("random operations on a queue with many groups, and dead letters")
{
    act(&(struct shmq_options){.capacity = 40,
                               .policies[0].visibility = 10 * SECOND,
                               .dead_letters = 1,
                               .policies[0].max_deliveries = 3,
                               .policies[0].retry = SECOND,
                               .policies[0].retry_max = 8 * SECOND},
        200, 20, 13);
}

TEST("random operations on a queue whose messages expire into the dead letters")
{
    act(&(struct shmq_options){.capacity = 24,
                               .policies[0].visibility = 10 * SECOND,
                               .dead_letters = 1,
                               .policies[0].ttl = 12 * SECOND},
        300, 4, 14);
}

TEST("random operations on a queue that drops what expires, and knows duplicates")
{
    act(&(struct shmq_options){.capacity = 24,
                               .policies[0].visibility = 10 * SECOND,
                               .dead_letters = 1,
                               .policies[0].ttl = 12 * SECOND,
                               .policies[0].drop_expired = 1,
                               .policies[0].max_deliveries = 1,
                               .dedupe_window = 5 * SECOND},
        300, 4, 15);
}

TEST("random operations on a queue that drops its oldest, in a small arena")
{
    act(&(struct shmq_options){.capacity = 16,
                               .arena_bytes = 64 * 40,
                               .policies[0].visibility = 10 * SECOND,
                               .policies[0].overflow = SHMQ_DROP_OLDEST},
        64 * 12, 4, 16);
}

TEST("random operations on a queue of one message")
{
    act(&(struct shmq_options){.capacity = 1,
                               .arena_bytes = 1024,
                               .priorities = 1,
                               .policies[0].visibility = 10 * SECOND},
        1024, 1, 17);
}

TEST("random operations on a queue with bodies too large to be kept, in a small arena")
{
    act(&(struct shmq_options){.capacity = 16,
                               .arena_bytes = 600000,
                               .policies[0].visibility = 10 * SECOND},
        150000, 2, 18);
}

TEST("random operations on a queue that is mostly full")
{
    act(&(struct shmq_options){.capacity = 100,
                               .arena_bytes = 64 * 150,
                               .policies[0].visibility = 100 * SECOND},
        300, 10, 19);
}
