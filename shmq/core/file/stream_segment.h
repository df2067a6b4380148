/* A walk over the records of a stream's segment file in their stored form: docs/internals/dmsq.md.
 *
 * A segment file holds batches: a BATCH record, sealed with the salt of the file, and the entries
 * of one commit, which are bytes of the partition's ring, sealed with the salt of the stream.
 * Offsets are consecutive through the whole file, times never decrease.
 *
 * Nothing is trusted before its checksum and its lengths were checked. */
#ifndef SHMQ_FILE_STREAM_SEGMENT_H
#define SHMQ_FILE_STREAM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a walk ended. */
enum shmq_stored_run {
    SHMQ_STREAM_SEGMENT_END = 0, /* nothing was written behind it */
    SHMQ_STREAM_SEGMENT_STOP, /* where it was to stop */
    SHMQ_STREAM_SEGMENT_TORN, /* at the file's end: a commit that was never finished */
    SHMQ_STREAM_SEGMENT_DAMAGED, /* the bytes there are not a record that can follow */
};

/* The two salts of a file. */
struct shmq_stream_segment_salts {
    uint32_t file; /* of BATCH, END, INDEX and FOOTER */
    uint32_t entries; /* of the stream's own records */
};

/* A walk: its limits, and its position. */
struct shmq_stream_segment {
    uint64_t at;     /* in: a record; out: the entry it stopped at, or the end */
    uint64_t
        offset; /* in: none before this is taken (0: whatever comes first); out: the next entry's
                        offset, or what comes next at the end */
    int64_t time; /* in: none before this; out: of the entry it stopped at, or of the last one */
    uint64_t stop_offset; /* stop at the entry that has this offset, or begins behind it, */
    int64_t stop_time; /* and whose time is not before this one; INT64_MIN: or right behind the one
                          before it, whatever follows there */
    uint64_t most_bytes; /* stop before the entry that would make it more; 0: no limit */
    uint64_t most; /* stop before the entry that would make it more records */
    uint64_t records; /* out: how many offsets were passed */
    uint64_t bytes; /* out: of the entries that were passed */
    bool verify; /* whether checksums of entries are compared */
};

/* Walks on from `w->at` over whole records. Entries must be consecutive, without a gap. It
 * passes at least one entry before a limit of bytes or records stops it. END, STOP or DAMAGED,
 * with `at` at the damage. */
enum shmq_stored_run shmq_stream_segment_walk(const unsigned char *bytes, size_t size,
                                              struct shmq_stream_segment_salts salts,
                                              struct shmq_stream_segment *w);

/* Finds the first whole entry from `w->at` on, at any multiple of 8 bytes, that may follow damage:
 * its offset is `w->offset` or later and before `w->stop_offset`, its time not before `w->time`.
 * Returns whether there is one, and sets `at`, `offset` and `time` to it. */
bool shmq_stream_segment_find(const unsigned char *bytes, size_t size,
                              struct shmq_stream_segment_salts salts,
                              struct shmq_stream_segment *w);

/* Copies the entries among the records to `to`, which has room for `size` bytes; returns how many
 * bytes. The records are some that a walk has passed. */
size_t shmq_stream_segment_entries(const unsigned char *bytes, size_t size, unsigned char *to);

/* Consecutive records of one producer, by offset and by sequence number. */
struct shmq_stream_segment_run {
    uint64_t producer, sequence, offset; /* the latter two: of the first */
    uint32_t count; /* 0: there is none */
};

/* Walks on from `w->at` up to `w->stop_offset`, over the next run of records of a producer. STOP
 * before the entry behind it; else like a walk, which may have ended a run. */
enum shmq_stored_run shmq_stream_segment_next_run(const unsigned char *bytes, size_t size,
                                                  struct shmq_stream_segment_salts salts,
                                                  struct shmq_stream_segment *w,
                                                  struct shmq_stream_segment_run *run);

/* The contents of a file, as far as its commits are whole. */
struct shmq_stream_segment_whole {
    uint64_t end; /* behind the last whole commit */
    uint64_t offset; /* in: the first offset; out: the next one */
    int64_t time; /* in: none before this; out: of the last entry */
    uint64_t records;
    uint64_t batches;
    uint64_t last_batch; /* the number of the last: its first offset */
    uint64_t damage; /* DAMAGED, TORN: the first record that is wrong */
    bool closed; /* END follows the last commit */
    uint64_t most; /* in: bytes of commits that a call reads; 0: no limit */
    bool more; /* in: false for the first call; out: STOP, the next call continues at `end` */
};

/* Reads all commits from `start` on, each of which counts as a whole or not at all. An incomplete
 * commit is a torn tail, unless there is a whole one with a later number anywhere behind it: a
 * commit only begins once the one before it is on disk. END, TORN, DAMAGED; with `most`, also STOP. */
enum shmq_stored_run shmq_stream_segment_check(const unsigned char *bytes, size_t size,
                                               size_t start, struct shmq_stream_segment_salts salts,
                                               struct shmq_stream_segment_whole *w);

#endif
