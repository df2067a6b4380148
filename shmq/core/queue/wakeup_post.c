#define _GNU_SOURCE
#include "queue/wakeup_post.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PLACES 64

struct opened {
    char name[SHMQ_BELL_NAME];
    sem_t *semaphore; /* NULL: the place is free */
};

static struct opened places[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `places` */

void shmq_ring_forked(void) { lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void shmq_bell_name(char name[SHMQ_BELL_NAME], const char *bells, uint64_t process, uint32_t n)
{
    (void)snprintf(name, SHMQ_BELL_NAME, "%s%016" PRIx64 ".%" PRIu32, bells, process, n);
}

/* Numbers of processes, and of a process's bells, are not given twice: a name that was
 * opened once means the same bell for ever. Holds `lock`. */
static sem_t *open_bell(const char *name, uint64_t process, uint32_t n)
{
    struct opened *place = &places[(process * 31 + n) % PLACES];
    sem_t *semaphore;

    if (place->semaphore && !strcmp(place->name, name))
        return place->semaphore;
    semaphore = sem_open(name, 0);
    if (semaphore == SEM_FAILED)
        return NULL;
    if (place->semaphore)
        (void)sem_close(place->semaphore);
    place->semaphore = semaphore;
    memcpy(place->name, name, SHMQ_BELL_NAME);
    return semaphore;
}

/* The owner takes the post, then looks at the bits: either it sees ours cleared, or we do
 * not see its post any more. The fence keeps our store before our look. */
void shmq_post_bell(sem_t *bell)
{
    int value = 0;

#ifndef __SANITIZE_THREAD__ /* knows no fences; where it runs, the exchange before is one */
    atomic_thread_fence(memory_order_seq_cst);
#endif
    (void)sem_getvalue(bell, &value);
    if (value <= 0)
        (void)sem_post(bell);
}

static void ring_one(const char *bells, const struct shmq_party *p)
{
    uint64_t process = GET_ATOMIC(p->process);
    uint32_t n = GET_ATOMIC(p->n) & ~SHMQ_FILTERED;
    char name[SHMQ_BELL_NAME];
    sem_t *semaphore;

    if (!process)
        return;
    shmq_bell_name(name, bells, process, n);
    pthread_mutex_lock(&lock);
    semaphore = open_bell(name, process, n);
    if (semaphore)
        shmq_post_bell(semaphore);
    pthread_mutex_unlock(&lock);
}

/* An entry may be another's by now: that one looks in vain. */
void shmq_ring(struct shmq_queue *q)
{
    uint64_t ring = atomic_exchange(&q->ring, 0);

    for (; ring && q->bells; ring &= ring - 1) {
        shmq_mark();
        ring_one(q->bells, &q->h->parties[__builtin_ctzll(ring)]);
    }
}
