/* Workers on one queue at the same time: threads, or processes. What goes in comes out,
 * each message acknowledged once, one of a group at a time and in order. */
#ifndef CROWD_H
#define CROWD_H

#include <semaphore.h>

#include "fixture.h"

#define CROWD_PRODUCERS 2u
#define CROWD_CONSUMERS 3u
#define CROWD_EACH 4000u /* messages of a producer */
#define CROWD_MESSAGES (CROWD_PRODUCERS * CROWD_EACH)
#define CROWD_GROUPS 5u

/* Of shared memory. */
struct crowd {
    sem_t semaphores[2];
    uint32_t deaths; /* a worker dies once in so many steps; 0: never */
    bool recovers;   /* the queue is recovered from time to time      */
    _Atomic uint32_t put[CROWD_PRODUCERS];
    _Atomic uint32_t acked;
    _Atomic uint8_t times[CROWD_MESSAGES]; /* acknowledged */
    _Atomic uint32_t flying[CROWD_GROUPS];
    _Atomic uint64_t last[CROWD_GROUPS]; /* sequence number acknowledged               */
};

struct crowd *crowd_new(uint32_t deaths);
void crowd_free(struct crowd *c);

/* The workers, each through an attached handle of its own. A producer puts its messages
 * from the first that is not there yet; a consumer leases, looks, returns and acknowledges
 * until all are acknowledged; so long, one who peeks looks at messages as they pass. */
void crowd_produce(struct shmq_queue *q, struct crowd *c, uint32_t producer, uint64_t seed);
void crowd_consume(struct shmq_queue *q, struct crowd *c, uint64_t seed);
void crowd_peek(struct shmq_queue *q, struct crowd *c, uint64_t seed);

/* Through a handle that is not attached: attaches it, leases, extends, returns or leaves
 * behind what it leased, recovers the queue where `recovers`, and detaches; so long. */
void crowd_pass_by(struct shmq_queue *q, struct crowd *c, uint64_t seed);

/* The persistence writer of the queue: what it has on disk is what the messages that it
 * wrote, and did not write the end of, are. So long, and until the last settlement is there;
 * a writer that is `restarted` now and then claims and does not mark it as synced. */
void crowd_follow(struct shmq_queue *q, struct crowd *c, uint64_t seed);

/* In a critical section, waited for as long as it takes. */
void crowd_lock(struct shmq_queue *q);

/* The same with the lock of the gets, at least. */
void crowd_lock_gets(struct shmq_queue *q);
void crowd_unlock(struct shmq_queue *q, struct crowd *c);

/* The queue is empty, well, and every message was acknowledged exactly once. */
void crowd_verify(struct shmq_queue *q, struct crowd *c);

#endif
