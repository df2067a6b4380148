/* Attachments of processes, and the return of what a dead process held. All hold the lock. */
#ifndef SHMQ_QUEUE_ATTACHMENTS_H
#define SHMQ_QUEUE_ATTACHMENTS_H

#include "queue/queue.h"

/* Gives the handle an attachment. SHMQ_CROWDED, SHMQ_NO_SPACE. */
int shmq_attach(struct shmq_queue *q, uint64_t process, uint32_t pid, const char *name);

/* Returns all that attachment `at` of process `process` held: its leases go back to the
 * queue, what it was writing is dropped, its views no longer pin anything. Frees the
 * entry. Does nothing if the entry is another's by now. */
void shmq_reclaim(struct shmq_queue *q, uint32_t at, uint64_t process, int64_t now);

/* The same for a handle that closes while views of it live on: those keep their pins, and
 * the entry, until the last of them is gone. */
void shmq_retire(struct shmq_queue *q, int64_t now);

#endif
