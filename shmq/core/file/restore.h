/* Filling a queue from its files while it is made: message by message, in the order of their
 * sequence numbers, before other processes may see it. */
#ifndef SHMQ_FILE_RESTORE_H
#define SHMQ_FILE_RESTORE_H

#include "file/record.h"
#include "queue/queue.h"

/* The records have wall time: `wall` and `now` are the same moment on both clocks. */
struct shmq_restorer {
    struct shmq_queue *q;
    int64_t now, wall;
    bool logged; /* its journal has the messages; else it must record them              */
};

/* Puts the message of a PUT record that also has its newest state: SHMQ_OK, SHMQ_FULL,
 * SHMQ_NO_SPACE, SHMQ_TOO_LARGE; SHMQ_STALE if its sequence number is not above all before it. An
 * expired delay or ttl takes effect in the first process that looks. */
int shmq_restore(struct shmq_restorer *r, const struct shmq_record *record);

/* Remembers a dedupe id, unless its window has passed. SHMQ_OK, SHMQ_NO_SPACE, SHMQ_FULL. */
int shmq_restore_id(struct shmq_restorer *r, const struct shmq_taken *id);

/* Ends the restoration: sequence numbers continue after `last_seq`; `totals` by enum shmq_total;
 * the journal continues after `batch`, in `segment`, of which `offset` bytes are valid. */
void shmq_restore_end(struct shmq_restorer *r, uint64_t last_seq, const uint64_t *totals,
                      uint64_t batch, uint64_t segment, uint64_t offset);

#endif
