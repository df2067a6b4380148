/* A chunk: many rows that are to be put into one queue, as the body of one message.
 *
 *   magic, rows (4 bytes each) | the target's hash key (8) | row | row | ...
 *
 * A row is what a put of it is to be, checked against its queue before: see row_chunk.c. A chunk
 * lies in a staging queue until its rows are moved from there (transfer.h). */
#ifndef SHMQ_QUEUE_ROW_CHUNK_H
#define SHMQ_QUEUE_ROW_CHUNK_H

#include "queue/message.h"

#define SHMQ_ROW_CHUNK_HEAD 16u

/* A reader of a chunk. */
struct shmq_row_chunk {
    const unsigned char *at, *end;
    uint32_t rows, row;  /* how many there are, and which is the next                     */
    uint64_t target;     /* the hash key of the queue that they are for                   */
    uint64_t hash[2];    /* the dedupe id of the row that was read last                   */
};

/* Writes a chunk's beginning: what is behind it. */
unsigned char *shmq_row_chunk_begin(unsigned char *to, uint32_t rows, uint64_t target);

/* The bytes of a row. */
uint64_t shmq_row_bytes(const struct shmq_put *put);

/* Writes a row: what is behind it. */
unsigned char *shmq_row_write(unsigned char *to, const struct shmq_put *put);

/* False if it is no chunk. */
bool shmq_row_chunk_read(struct shmq_row_chunk *chunk, const unsigned char *at, uint64_t bytes);

/* The next row, which points into the chunk and the reader. False at the end, and if the row
 * is not whole. */
bool shmq_row_read(struct shmq_row_chunk *chunk, struct shmq_put *put);

#endif
