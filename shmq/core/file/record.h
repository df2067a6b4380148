/* The records of a .dmsq file as bytes: docs/internals/dmsq.md.
 *
 *   words u32 | crc u32 | payload: `words` times 8 bytes
 *
 * All integers are little-endian, every record begins at a multiple of 8, and the padding of a
 * payload is zero. The checksum is the CRC-32C of the file's salt, `words` and the payload: because
 * of the salt, bytes in a message's body that look like a record are not taken for one. Words of 0
 * mark the end: a file may be longer than what has been written.
 *
 * A file is a header and batches. A batch is a BATCH record, which has the checksum of what follows
 * it, and `bytes` of other records. It counts as a whole or not at all. Behind the last batch of a
 * closed file are END, INDEX and FOOTER. */
#ifndef SHMQ_FILE_RECORD_H
#define SHMQ_FILE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMQ_DMSQ_VERSION 1u
#define SHMQ_RECORD_HEAD 8u      /* bytes of words and crc                             */
#define SHMQ_BATCH_BYTES 56u     /* of a whole BATCH record, which has a fixed size    */

enum shmq_record_type {
    SHMQ_R_BATCH = 1,
    SHMQ_R_PUT = 2,    /* a message; replaces a known one                               */
    SHMQ_R_SETTLE = 3, /* settled messages; unknown ones are ignored                    */
    SHMQ_R_UPDATE = 4, /* deliveries and state of a known message                       */
    SHMQ_R_DEDUPE = 5, /* known dedupe ids                                              */
    SHMQ_R_STATE = 6,  /* the last sequence number, and the totals                      */
    SHMQ_R_END = 7,    /* the file is complete                                          */
    SHMQ_R_INDEX = 8,
    SHMQ_R_FOOTER = 9,
};

/* The optional fields that a PUT or an UPDATE has. */
#define SHMQ_R_GROUPED 0x01u /* group                                                   */
#define SHMQ_R_TTL 0x02u     /* expires                                                 */
#define SHMQ_R_DELAYED 0x04u /* until                                                   */
#define SHMQ_R_DEAD 0x08u    /* dead_at, and a reason                                   */
#define SHMQ_R_ORIGIN 0x10u  /* origin_queue, origin_seq                                */
#define SHMQ_R_HOLDS 0x20u   /* with DELAYED: holds its group back                      */
#define SHMQ_R_FLAGS 0x3Fu
#define SHMQ_R_UPDATABLE (SHMQ_R_DELAYED | SHMQ_R_DEAD | SHMQ_R_HOLDS)

/* An entry of a DEDUPE record, the same in memory and in the file. */
struct shmq_taken {
    uint64_t hash[2];
    uint64_t seq;
    int64_t until; /* wall ns                                                           */
};

/* An entry of an INDEX record: the beginning of a batch. */
struct shmq_indexed_batch {
    uint64_t offset;
    uint64_t batch;
    uint64_t last_seq; /* of that BATCH                                                 */
};

/* A queue's counters in a STATE record, in the order of the statistics. */
enum shmq_total {
    SHMQ_TOTAL_ACKED,
    SHMQ_TOTAL_NACKED,
    SHMQ_TOTAL_EXPIRED,
    SHMQ_TOTAL_DEAD_LETTERED,
    SHMQ_TOTAL_DROPPED,
    SHMQ_TOTAL_DEDUPED,
    SHMQ_TOTAL_REDELIVERED,
    SHMQ_TOTALS
};

/* One record; each type has its own members. Times are wall time, ns since 1970. */
struct shmq_record {
    uint8_t type;
    uint8_t flags;         /* PUT, UPDATE: SHMQ_R_...; an UPDATE writes the UPDATABLE   */
    uint8_t priority;      /* PUT                                                       */
    uint8_t codec;         /* PUT                                                     */
    uint8_t reason;        /* PUT, UPDATE: enum shmq_reason, if DEAD                    */
    uint16_t deliveries;   /* PUT, UPDATE                                               */
    uint64_t seq;          /* PUT, UPDATE                                               */
    int64_t put_at;        /* PUT                                                       */
    uint32_t body_bytes;   /* PUT                                                       */
    uint32_t meta_bytes;
    const void *body;      /* in a record it begins at a multiple of 8                  */
    const void *meta;      /*   and this follows it directly                            */
    uint64_t group;
    int64_t expires;
    int64_t until;
    int64_t dead_at;
    uint64_t origin_queue;
    uint64_t origin_seq;
    uint32_t count;        /* SETTLE, DEDUPE, INDEX: entries                            */
    const void *entries;   /* SETTLE: uint64_t; struct shmq_taken; struct shmq_indexed_batch */
    uint64_t batch;        /* BATCH: its number; END: the last one's                    */
    int64_t wall;          /* BATCH: when it was written                                */
    uint64_t last_seq;     /* BATCH, STATE, END: the last number assigned               */
    uint64_t bytes;        /* BATCH: of the records that follow it                      */
    uint32_t crc;          /* BATCH: CRC-32C of these bytes                             */
    uint64_t batches;      /* END: in this file                                         */
    uint64_t puts;         /* END: PUT records in this file                             */
    uint64_t index;        /* FOOTER: where the first INDEX record begins               */
    uint64_t end;          /* FOOTER: where END begins                                  */
    uint64_t totals[SHMQ_TOTALS]; /* STATE                                              */
};

/* ---- encoding ---- */

/* The size in bytes of the whole record, a multiple of 8. 0 if it exceeds the format's limit. */
size_t shmq_record_size(const struct shmq_record *r);

/* Writes the record to `at`, a multiple of 8 with room for shmq_record_size; returns the place
 * behind it. */
unsigned char *shmq_record_write(unsigned char *at, uint32_t salt, const struct shmq_record *r);

/* The same for a PUT in two steps, so that the caller copies body and meta itself:
 * shmq_record_begin writes everything before them and their padding, and returns the place of
 * the body; meta goes directly behind it. shmq_record_seal writes the checksum of any record,
 * and returns the place behind it. If it is never sealed, nothing has to be undone. */
unsigned char *shmq_record_begin(unsigned char *at, const struct shmq_record *r);
unsigned char *shmq_record_seal(unsigned char *at, uint32_t salt);

/* Seals all whole records in `bytes` for a file with another salt. They must be the caller's own:
 * records that were read are checked by shmq_record_read. */
void shmq_records_seal(unsigned char *bytes, size_t size, uint32_t salt);

/* ---- decoding ---- */

enum shmq_read {
    SHMQ_READ_OK = 0,
    SHMQ_READ_END,       /* words of 0, or no bytes left                                */
    SHMQ_READ_CUT,       /* longer than the bytes left                                  */
    SHMQ_READ_CRC,       /* the checksum is wrong                                       */
    SHMQ_READ_TYPE,      /* the checksum is right, but the type unknown                 */
    SHMQ_READ_MALFORMED, /* the checksum is right, but the fields are contradictory     */
};

/* Reads the record at `bytes`, of which `size` are readable. For OK, TYPE and MALFORMED sets
 * `next` to its size. Pointers of `r` lead into `bytes`. Without `verify` the checksum is not
 * compared: for records in a batch whose checksum was right. */
enum shmq_read shmq_record_read(const unsigned char *bytes, size_t size, uint32_t salt, bool verify,
                                struct shmq_record *r, size_t *next);

/* Entries of a record that was read or will be written. `at` < count. */
uint64_t shmq_record_settled(const struct shmq_record *r, uint32_t at);
struct shmq_taken shmq_record_taken(const struct shmq_record *r, uint32_t at);
struct shmq_indexed_batch shmq_record_indexed(const struct shmq_record *r, uint32_t at);

#endif
