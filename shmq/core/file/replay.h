/* The combined contents of a queue's files: its live messages and its counters.
 *
 * In private memory it keeps, for each live message, the place of its PUT and its newest state, 32
 * bytes; the files must stay in place until shmq_replay_end. Files are fed from the oldest to the
 * newest, the snapshot first. */
#ifndef SHMQ_FILE_REPLAY_H
#define SHMQ_FILE_REPLAY_H

#include "file/live_messages.h"
#include "file/record.h"
#include "queue/columns.h"

/* A copy of a message of another queue, settled or not. */
struct shmq_copy {
    uint64_t queue;
    uint64_t seq; /* in the other queue                                                 */
    uint64_t here;
};

/* Bytes that are not records, in a file being salvaged. */
struct shmq_skipped {
    uint32_t file; /* index of the file as fed                                          */
    enum shmq_read how;
    uint64_t offset;
    uint64_t bytes;
};

struct shmq_image {
    const unsigned char *bytes;
    uint64_t size;
    uint32_t salt;
};

/* A growing array. */
struct shmq_array {
    void *items;
    uint64_t count, room;
};

struct shmq_replay {
    struct shmq_live_messages live;
    uint64_t live_bytes;    /* of their PUT records                                     */
    uint64_t last_seq;
    uint64_t last_batch;
    uint64_t totals[SHMQ_TOTALS];
    struct shmq_array images;   /* struct shmq_image                               */
    struct shmq_array copies;   /* struct shmq_copy                                */
    struct shmq_array taken;    /* struct shmq_taken                               */
    struct shmq_array skipped;  /* struct shmq_skipped                             */
    uint64_t records, puts; /* read                                                     */
    uint64_t first, last;   /* other sequence numbers are ignored                       */
    bool salvage;
    uint64_t most;          /* bytes that a call of feed reads; 0: no limit             */
    bool more;              /* the last file is not read to its end                     */
    bool sorted;
    bool no_memory;
};

enum shmq_fed {
    SHMQ_FED_OK = 0,
    SHMQ_FED_TORN,      /* the last batch is incomplete, and does not count              */
    SHMQ_FED_DAMAGED,
    SHMQ_FED_NO_MEMORY,
    SHMQ_FED_MORE,      /* read up to `end`: call again with the same arguments         */
};

/* The result of reading a file. */
struct shmq_found {
    uint64_t end;       /* behind the last batch that counts                            */
    uint64_t damage;    /* DAMAGED: where                                               */
    enum shmq_read how; /*   and what is wrong there                                    */
    uint64_t batches;   /* that count                                                   */
    uint64_t puts;      /* PUT records in them                                          */
    bool complete;      /* there is an END, and its counts are the same                 */
};

/* Keeps only messages with sequence numbers from `first` to `last`. */
void shmq_replay_begin(struct shmq_replay *r, bool salvage, uint64_t first, uint64_t last);
void shmq_replay_end(struct shmq_replay *r);

/* Reads the file `bytes`, whose records begin at `start`, a multiple of 8, and whose batches are
 * numbered from `first_batch` on. Up to `whole` it must consist of batches without a gap. From
 * there on it may end in a torn batch, or with `exact`, what is behind `whole` does not count.
 * When salvaging, damaged parts are skipped and listed, and this does not return DAMAGED. With
 * `r->most`, it returns MORE before the first batch that begins so many bytes behind where the call
 * began. Not allowed after sorting. */
enum shmq_fed shmq_replay_feed(struct shmq_replay *r, const unsigned char *bytes, uint64_t size,
                               uint64_t start, uint32_t salt, uint64_t first_batch, uint64_t whole,
                               bool exact, struct shmq_found *found);

/* Forgets a live message; false if there is none with that number. Not allowed after sorting. */
bool shmq_replay_discard(struct shmq_replay *r, uint64_t seq);

/* The least and the greatest number of a live message; false: none. Not allowed after sorting. */
bool shmq_replay_span(const struct shmq_replay *r, uint64_t *least, uint64_t *greatest);

/* Adds up the bytes of the live messages' PUT records: sums[i] for the `width` numbers from
 * first + i * width on, for i < count. Not allowed after sorting. */
void shmq_replay_spread(const struct shmq_replay *r, uint64_t first, uint64_t width, uint64_t *sums,
                        uint64_t count);

/* Sorts the live messages by number, after which shmq_replay_message returns the one at `at` <
 * count as a PUT of its newest state; and sorts the dedupe entries whose `until` is after
 * `wall`, also by number. False: no memory. */
bool shmq_replay_sort(struct shmq_replay *r, int64_t wall);
void shmq_replay_message(const struct shmq_replay *r, uint64_t at, struct shmq_record *record);

/* The end of the batches according to a closed file's footer: 0 if it has none. */
uint64_t shmq_replay_closed(const unsigned char *bytes, uint64_t size, uint64_t start,
                            uint32_t salt);

/* ---- as columns: the messages of a sorted replay ---- */

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
