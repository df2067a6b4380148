/* Moving a message to another queue, exactly once, whichever process dies.
 *
 * The mover takes the message in the source (MOVING), stages a copy in the target (STAGED, which
 * names its origin), settles the source (its FREE is the commit point) and commits the copy. A copy
 * whose mover died has no owner: if the source still has the message, the copy is void, and the
 * next mover removes it before it stages its own; if the source does not have it, the copy is the
 * message, and the process that finds it commits it. No step holds two locks. All functions but
 * shmq_disown hold the lock of the queue that they are given.
 *
 * A chunk is one message that is moved as many, a run of its rows at a time: a run is
 * staged; then the chunk's word is set to the number of rows that have moved, which is the run's
 * commit point; then the run is committed. A row whose mover died is a message if the word counts
 * it or the chunk is gone, and void otherwise. So a run is as long as the target has room, and no
 * row waits for another. */
#pragma once

#include "queue/message.h"
#include "queue/queue.h"

/* Takes the next DEAD message. SHMQ_EMPTY. One without a reason is not a dead letter: its mover died,
 * and it must be put back once a copy that the mover may have left is removed. */
int shmq_take_dead(struct shmq_queue *q, struct shmq_view *view);

/* Takes a READY message, named by slot and sequence number. SHMQ_STALE. */
int shmq_take(struct shmq_queue *q, uint32_t at, uint64_t seq, struct shmq_view *view);

/* The commit point: the message has moved. SHMQ_STALE if the caller no longer had it. */
int shmq_moved(struct shmq_queue *q, uint64_t receipt);

/* The commit point of a run: the chunk's first `rows` rows have moved. SHMQ_STALE. */
int shmq_moved_rows(struct shmq_queue *q, uint64_t receipt, uint32_t rows);

/* How many rows of a chunk have moved. */
static inline uint32_t shmq_rows_moved(uint64_t word) { return shmq_deliveries_of(word); }

/* Puts the message back where it was. Its mover calls this, and knows that no copy exists. */
int shmq_untake(struct shmq_queue *q, uint64_t receipt);

/* The mover gives up: the message becomes DEAD, whatever it was, for the next mover. */
int shmq_give_up(struct shmq_queue *q, uint64_t receipt);

/* Removes orphaned copies of that message; of a chunk, those of its rows from `rows` on. */
void shmq_void_copies(struct shmq_queue *q, uint64_t origin_queue, uint64_t origin_seq,
                      uint32_t rows);

/* The origin of a copy. `row`: its number in the chunk, or SHMQ_NO_ROW. */
struct shmq_origin {
    uint64_t receipt;
    uint64_t queue, seq;
    uint32_t row;
};

#define SHMQ_NO_ROW UINT32_MAX

/* The next orphaned copy at or after slot `from`. SHMQ_EMPTY. */
int shmq_find_orphan(struct shmq_queue *q, uint32_t from, struct shmq_origin *origin);

/* The owner of a FILLING, STAGED or MOVING slot leaves it as if it had died: space is freed once no view
 * is left of it, a copy is decided by its origin, a message waits for its next mover. Needs no lock,
 * for an owner that cannot take it: nobody else changes such a slot while its owner lives. Does
 * nothing if it is not the owner. */
void shmq_disown(struct shmq_queue *q, uint64_t receipt);

/* Whether the queue still has message `seq`, or that row of it, dying or being moved. */
bool shmq_still_moves(struct shmq_queue *q, uint64_t seq, uint32_t row);

/* ---- row_chunk.c ---- */

/* A chunk: many rows to be put into one queue, as the body of one message.
 *
 *   magic, rows (4 bytes each) | the target's hash key (8) | row | row | ...
 *
 * A row describes one put, which was checked against its queue before: see row_chunk.c. A chunk
 * stays in a staging queue until its rows are moved from there (transfer.h). */

#define SHMQ_ROW_CHUNK_HEAD 16u

/* A reader of a chunk. */
struct shmq_row_chunk {
    const unsigned char *at, *end;
    uint32_t rows, row;  /* how many there are, and the index of the next                 */
    uint64_t target;     /* the hash key of the target queue                              */
    uint64_t hash[2];    /* the dedupe id of the last row that was read                   */
};

/* Writes the beginning of a chunk; returns the place behind it. */
unsigned char *shmq_row_chunk_begin(unsigned char *to, uint32_t rows, uint64_t target);

/* The size in bytes of a row. */
uint64_t shmq_row_bytes(const struct shmq_put *put);

/* Writes a row; returns the place behind it. */
unsigned char *shmq_row_write(unsigned char *to, const struct shmq_put *put);

/* Begins to read a chunk; false if it is not one. */
bool shmq_row_chunk_read(struct shmq_row_chunk *chunk, const unsigned char *at, uint64_t bytes);

/* The next row, which points into the chunk and the reader. False at the end, and if the row is
 * truncated. */
bool shmq_row_read(struct shmq_row_chunk *chunk, struct shmq_put *put);
