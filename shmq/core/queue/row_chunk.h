/* A chunk: many rows to be put into one queue, as the body of one message.
 *
 *   magic, rows (4 bytes each) | the target's hash key (8) | row | row | ...
 *
 * A row describes one put, which was checked against its queue before: see row_chunk.c. A chunk
 * stays in a staging queue until its rows are moved from there (transfer.h). */
#ifndef SHMQ_QUEUE_ROW_CHUNK_H
#define SHMQ_QUEUE_ROW_CHUNK_H

#include "queue/message.h"

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

#endif
