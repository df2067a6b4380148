/* Messages of files as columns: from a sorted replay. */
#ifndef SHMQ_FILE_COLUMNS_H
#define SHMQ_FILE_COLUMNS_H

#include "queue/columns.h"
#include "file/replay.h"

/* The selected messages (both ends are inclusive), and their sizes. */
struct shmq_file_columns {
    uint64_t least_seq, most_seq;
    int64_t least_put_at, most_put_at; /* microseconds since 1970                        */
    uint64_t max_bytes;  /* of the block: what does not fit is left, except the first     */
    uint32_t count;
    uint64_t body_bytes, meta_bytes;
};

/* Counts the selected messages from `at` to `end`, as far as they fit; sets `at` to the first that
 * was not looked at. False: the first one fits no block. */
bool shmq_file_columns_count(const struct shmq_replay *r, struct shmq_file_columns *e, uint64_t *at,
                             uint64_t end);

/* Copies the counted messages. */
void shmq_file_columns_copy(const struct shmq_replay *r, const struct shmq_file_columns *e,
                            uint64_t at, uint64_t end, struct shmq_columns *c);

#endif
