/* What comes out of shared memory is checked before it is used: whatever a stray store
 * leaves there, operations may fail or answer oddly, but they never touch a byte outside
 * of the mapping (its surroundings fault), and they never hang. */
#define _GNU_SOURCE
#include "actor.h"
#include "queue/slot.h"
#include "queue/recover.h"
#include "queue/index.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 600
#define STEPS_BEFORE 60
#define STEPS_AFTER 60
#define PATIENCE 60 /* s for a round that takes a millisecond */

static volatile uint64_t round_seed;
static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM};
static struct sigaction before[NSIG];

/* Says which round it was, and leaves the rest to whoever would have had the signal. */
static void say_seed(int number)
{
    char text[80];
    int size = snprintf(text, sizeof text, "    signal %d at SHMQ_SEED=%llu\n", number,
                        (unsigned long long)round_seed);

    if (write(STDERR_FILENO, text, (size_t)size) < 0)
        _exit(2);
    (void)sigaction(number, &before[number], NULL);
    raise(number);
}

static void watch(bool on)
{
    struct sigaction action = {.sa_handler = say_seed};

    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        CHECK(
            !sigaction(fatal[i], on ? &action : &before[fatal[i]], on ? &before[fatal[i]] : NULL));
}

struct region {
    void *at;
    uint64_t size;
};

#define BETWEEN(q, first, end)                                             \
    ((struct region){(char *)(q)->h + offsetof(struct shmq_header, first), \
                     (end) - offsetof(struct shmq_header, first)})

/* A part of the header that operations write, but for the locks: what the C library keeps
 * there is its own affair. */
static struct region mutable_header(struct shmq_queue *q, struct chance *chance)
{
    switch (chance_below(chance, 4)) {
    case 0: return BETWEEN(q, next_tick, offsetof(struct shmq_header, put_lock));
    case 1: return BETWEEN(q, last_seq, offsetof(struct shmq_header, lock));
    default: return BETWEEN(q, serial, sizeof(struct shmq_header));
    }
}

static struct region random_region(struct shmq_queue *q, struct chance *chance)
{
    struct shmq_header *h = q->h;
    uint64_t slots = h->slots_made && h->slots_made <= h->options.capacity ? h->slots_made : 1;

    switch (chance_below(chance, 13)) {
    case 0:
    case 1:
    case 2: return mutable_header(q, chance);
    case 3:
    case 4:
    case 5: return (struct region){q->slots, slots * sizeof(struct shmq_slot)};
    case 6: return (struct region){q->timer_slots, slots * 4};
    case 7: return (struct region){q->order_slots, slots * 4};
    case 8: return (struct region){q->groups, slots * sizeof(struct shmq_group)};
    case 9: return (struct region){q->group_buckets, q->geo.group_buckets_max * 4ull};
    case 11: /* the rings between the two sides */
        return BETWEEN(q, inbox, offsetof(struct shmq_header, slots_made));
    case 10: return (struct region){q->attachments, 4 * sizeof(struct shmq_attachment)};
    default:
        return q->geo.dedupe_max
                   ? (struct region){chance_below(chance, 2) ? (void *)q->dedupe
                                                             : (void *)q->dedupe_buckets,
                                     512}
                   : (struct region){q->bitmap, (q->geo.units + 63) / 64 * 8};
    }
}

/* Flips a bit, or stores a word that is likely to lead somewhere. */
static void damage(struct shmq_queue *q, struct chance *chance)
{
    struct region region = random_region(q, chance);
    uint64_t words = region.size / 4, at = chance_below(chance, words);
    uint32_t *word = (uint32_t *)region.at + at;

    switch (chance_below(chance, 7)) {
    case 0:
    case 1: *word ^= 1u << chance_below(chance, 32); break;
    case 2: *word = (uint32_t)chance_next(chance); break;
    case 3: *word = UINT32_MAX - (uint32_t)chance_below(chance, 2); break;
    case 4: *word = (uint32_t)chance_below(chance, 40); break;
    case 5: *word = q->h->options.capacity + (uint32_t)chance_below(chance, 3) - 1; break;
    default: *word = ((uint32_t *)region.at)[chance_below(chance, words)];
    }
}

/* What is not among the actor's operations. */
static void look_round(struct shmq_queue *q, struct chance *chance)
{
    struct shmq_view view;
    struct shmq_slot *s;

    switch (chance_below(chance, 5)) {
    case 0: (void)shmq_check(q); break;
    case 1: (void)shmq_rebuild(q); break;
    case 2: (void)shmq_arena_largest(q); break;
    case 3: (void)shmq_next_due(q); break;
    default:
        s = shmq_slot_named(q, chance_below(chance, q->h->options.capacity));
        if (s)
            shmq_look(q, s, &view);
    }
}

static void damage_and_go_on(const struct shmq_options *options, uint64_t seed)
{
    struct chance chance = chance_from(seed);
    struct shmq_queue *q = new_queue(options);
    struct actor *a = actor_new(q, chance, 700, 5);

    for (int step = 0; step < STEPS_BEFORE; step++)
        actor_step(a);
    a->strict = false;
    for (uint64_t count = 1 + chance_below(&chance, 10); count > 0; count--)
        damage(q, &chance);
    for (int step = 0; step < STEPS_AFTER; step++) {
        actor_step(a);
        if (actor_lock(a))
            look_round(a->q, &chance);
        if (chance_below(&chance, 40) == 0)
            damage(q, &chance);
    }
    free(a);
    release_everything();
}

/* Each round has a seed of its own, so that the one that fails can be run alone. */
static void survive(const struct shmq_options *options, uint64_t seed)
{
    uint64_t first = seed_or(seed * 1000000);

    watch(true);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        round_seed = first + round;
        alarm(PATIENCE);
        damage_and_go_on(options, round_seed);
    }
    watch(false);
}

TEST("a damaged queue with groups is survived")
{
    survive(&(struct shmq_options){.capacity = 30,
                                   .arena_bytes = 64 * 100,
                                   .dead_letters = 1,
                                   .policies[0].max_deliveries = 3,
                                   .policies[0].visibility = 10 * SECOND},
            1);
}

TEST("a damaged queue that knows duplicates is survived")
{
    survive(&(struct shmq_options){.capacity = 30,
                                   .arena_bytes = 64 * 100,
                                   .policies[0].ttl = 9 * SECOND,
                                   .dedupe_window = 5 * SECOND,
                                   .policies[0].visibility = 10 * SECOND},
            2);
}

TEST("a damaged queue that drops its oldest is survived")
{
    survive(&(struct shmq_options){.capacity = 30,
                                   .arena_bytes = 64 * 40,
                                   .policies[0].overflow = SHMQ_DROP_OLDEST,
                                   .policies[0].visibility = 10 * SECOND},
            3);
}
