/* Attachments of processes, and reclaiming what a dead process held. All hold the lock. */
#ifndef SHMQ_QUEUE_ATTACHMENTS_H
#define SHMQ_QUEUE_ATTACHMENTS_H

#include "queue/queue.h"

/* Attaches the handle. SHMQ_CROWDED, SHMQ_NO_SPACE. */
int shmq_attach(struct shmq_queue *q, uint64_t process, uint32_t pid, const char *name);

/* Reclaims what attachment `at` of process `process` held: its leases return to the queue, its
 * unfinished messages are dropped, its views no longer pin anything. Frees the entry. Does nothing
 * if the entry belongs to another process by now. */
void shmq_reclaim(struct shmq_queue *q, uint32_t at, uint64_t process, int64_t now);

/* The same for a handle that closes while it has views: those keep their pins and the entry until
 * the last view is gone. */
void shmq_retire(struct shmq_queue *q, int64_t now);

#endif
