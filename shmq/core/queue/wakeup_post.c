#define _GNU_SOURCE
#include "queue/wakeup_post.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CACHED 64

struct opened {
    char name[SHMQ_WAKEUP_NAME];
    sem_t *semaphore; /* NULL: the entry is free */
};

static struct opened cache[CACHED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `cache` */

void shmq_wakeups_forked(void) { lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void shmq_wakeup_name(char name[SHMQ_WAKEUP_NAME], const char *prefix, uint64_t process, uint32_t n)
{
    (void)snprintf(name, SHMQ_WAKEUP_NAME, "%s%016" PRIx64 ".%" PRIu32, prefix, process, n);
}

/* The numbers of processes, and of a process's wakeups, are never reused: a name always means the
 * same wakeup. Holds `lock`. */
static sem_t *open_wakeup(const char *name, uint64_t process, uint32_t n)
{
    struct opened *cached = &cache[(process * 31 + n) % CACHED];
    sem_t *semaphore;

    if (cached->semaphore && !strcmp(cached->name, name))
        return cached->semaphore;
    semaphore = sem_open(name, 0);
    if (semaphore == SEM_FAILED)
        return NULL;
    if (cached->semaphore)
        (void)sem_close(cached->semaphore);
    cached->semaphore = semaphore;
    memcpy(cached->name, name, SHMQ_WAKEUP_NAME);
    return semaphore;
}

/* The owner takes the post, then looks at the bits: either it sees ours cleared, or we do not
 * see its post any more. The fence orders our store before our look. */
void shmq_post_wakeup(sem_t *wakeup)
{
    int value = 0;

#ifndef __SANITIZE_THREAD__ /* knows no fences; where it runs, the exchange before is one */
    atomic_thread_fence(memory_order_seq_cst);
#endif
    (void)sem_getvalue(wakeup, &value);
    if (value <= 0)
        (void)sem_post(wakeup);
}

static void wake_one(const char *prefix, const struct shmq_party *p)
{
    uint64_t process = GET_ATOMIC(p->process);
    uint32_t n = GET_ATOMIC(p->n) & ~SHMQ_FILTERED;
    char name[SHMQ_WAKEUP_NAME];
    sem_t *semaphore;

    if (!process)
        return;
    shmq_wakeup_name(name, prefix, process, n);
    pthread_mutex_lock(&lock);
    semaphore = open_wakeup(name, process, n);
    if (semaphore)
        shmq_post_wakeup(semaphore);
    pthread_mutex_unlock(&lock);
}

/* An entry may belong to another party by now, which then looks in vain. */
void shmq_wake_parties(struct shmq_queue *q)
{
    uint64_t parties = atomic_exchange(&q->to_wake, 0);

    for (; parties && q->wakeup_prefix; parties &= parties - 1) {
        shmq_mark();
        wake_one(q->wakeup_prefix, &q->h->parties[__builtin_ctzll(parties)]);
    }
}
