/* Filling a queue that is being made anew from what its files held: message by message, in
 * the order of their sequence numbers, before anybody else may see it. */
#ifndef SHMQ_FILE_RESTORE_H
#define SHMQ_FILE_RESTORE_H

#include "queue/queue.h"
#include "file/record.h"

/* Times of the records are wall time: `wall` and `now` are the same moment on both clocks. */
struct shmq_restorer {
    struct shmq_queue *q;
    int64_t now, wall;
    bool logged; /* its journal has the messages; else it is yet to be told of them     */
};

/* Puts the message of a PUT record, of which the newest state is in the record too: SHMQ_OK,
 * SHMQ_FULL, SHMQ_NO_SPACE, SHMQ_TOO_LARGE; SHMQ_STALE for one whose sequence number is not above
 * all before it. What is over, a delay or a ttl, is found over by the first process that looks. */
int shmq_restore(struct shmq_restorer *r, const struct shmq_record *record);

/* Remembers a dedupe id, unless its window has passed. SHMQ_OK, SHMQ_NO_SPACE, SHMQ_FULL. */
int shmq_restore_id(struct shmq_restorer *r, const struct shmq_taken *id);

/* The end: sequence numbers go on behind `last_seq`; `totals` by enum shmq_total; the journal
 * behind `batch`, in `segment` of which `offset` bytes are good. */
void shmq_restore_end(struct shmq_restorer *r, uint64_t last_seq, const uint64_t *totals,
                      uint64_t batch, uint64_t segment, uint64_t offset);

#endif
