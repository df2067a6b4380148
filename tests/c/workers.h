/* Workers on one queue at the same time: threads, or processes. What goes in comes out,
 * each message acknowledged once, one of a group at a time and in order. */
#pragma once

#include <semaphore.h>

#include "fixture.h"

#define WORKERS_PRODUCERS 2u
#define WORKERS_CONSUMERS 3u
#define WORKERS_EACH 4000u /* messages of a producer */
#define WORKERS_MESSAGES (WORKERS_PRODUCERS * WORKERS_EACH)
#define WORKERS_GROUPS 5u

/* Of shared memory. */
struct workers {
    sem_t semaphores[2];
    uint32_t deaths; /* a worker dies once in so many steps; 0: never */
    bool recovers;   /* the queue is recovered from time to time      */
    _Atomic uint32_t put[WORKERS_PRODUCERS];
    _Atomic uint32_t acked;
    _Atomic uint8_t times[WORKERS_MESSAGES]; /* acknowledged */
    _Atomic uint32_t flying[WORKERS_GROUPS];
    _Atomic uint64_t last[WORKERS_GROUPS]; /* sequence number acknowledged               */
};

struct workers *workers_new(uint32_t deaths);
void workers_free(struct workers *c);

/* The workers, each through an attached handle of its own. A producer puts its messages
 * from the first that is not there yet; a consumer leases, looks, returns and acknowledges
 * until all are acknowledged; so long, one who peeks looks at messages as they pass. */
void workers_produce(struct shmq_queue *q, struct workers *c, uint32_t producer, uint64_t seed);
void workers_consume(struct shmq_queue *q, struct workers *c, uint64_t seed);
void workers_peek(struct shmq_queue *q, struct workers *c, uint64_t seed);

/* Through a handle that is not attached: attaches it, leases, extends, returns or leaves
 * behind what it leased, recovers the queue where `recovers`, and detaches; so long. */
void workers_pass_by(struct shmq_queue *q, struct workers *c, uint64_t seed);

/* The persistence writer of the queue: what it has on disk is what the messages that it
 * wrote, and did not write the end of, are. So long, and until the last settlement is there;
 * a writer that is `restarted` now and then claims and does not mark it as synced. */
void workers_follow(struct shmq_queue *q, struct workers *c, uint64_t seed);

/* In a critical section, waited for as long as it takes. */
void workers_lock(struct shmq_queue *q);

/* The same with the lock of the gets, at least. */
void workers_lock_gets(struct shmq_queue *q);
void workers_unlock(struct shmq_queue *q, struct workers *c);

/* The queue is empty, well, and every message was acknowledged exactly once. */
void workers_verify(struct shmq_queue *q, struct workers *c);
