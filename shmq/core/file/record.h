/* The records of a .dmsq file as bytes: docs/dmsq.md.
 *
 *   words u32 | crc u32 | payload: `words` times 8 bytes
 *
 * All integers are little-endian, every record begins at a multiple of 8, and what pads a
 * payload is zero. The checksum is the CRC-32C of `words` and the payload, after the salt of
 * the file: so what looks like a record inside of a message's body is none. Words of 0 are
 * the end: a file may be longer than what has been written.
 *
 * A file is a header and batches: a BATCH, which has the checksum of what follows it, and
 * `bytes` of other records. A batch counts as a whole or not at all. Behind the last of a
 * closed file stand END, INDEX and FOOTER. */
#ifndef SHMQ_FILE_RECORD_H
#define SHMQ_FILE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMQ_DMSQ_VERSION 1u
#define SHMQ_RECORD_HEAD 8u      /* bytes of words and crc                             */
#define SHMQ_BATCH_BYTES 56u     /* of a whole BATCH record: its size never differs    */

enum shmq_record_type {
    SHMQ_R_BATCH = 1,
    SHMQ_R_PUT = 2,    /* a message as it is; one that is known is replaced             */
    SHMQ_R_SETTLE = 3, /* messages that are gone; one that is not known is nothing      */
    SHMQ_R_UPDATE = 4, /* deliveries and state of a known message                       */
    SHMQ_R_DEDUPE = 5, /* ids that are taken                                            */
    SHMQ_R_STATE = 6,  /* the last sequence number, and the totals                      */
    SHMQ_R_END = 7,    /* the file is complete                                          */
    SHMQ_R_INDEX = 8,
    SHMQ_R_FOOTER = 9,
};

/* Which of the optional fields a PUT or an UPDATE has. */
#define SHMQ_R_GROUPED 0x01u /* group                                                   */
#define SHMQ_R_TTL 0x02u     /* expires                                                 */
#define SHMQ_R_DELAYED 0x04u /* until                                                   */
#define SHMQ_R_DEAD 0x08u    /* dead_at, and a reason                                   */
#define SHMQ_R_ORIGIN 0x10u  /* origin_queue, origin_seq                                */
#define SHMQ_R_HOLDS 0x20u   /* with DELAYED: holds its group back                      */
#define SHMQ_R_FLAGS 0x3Fu
#define SHMQ_R_UPDATABLE (SHMQ_R_DELAYED | SHMQ_R_DEAD | SHMQ_R_HOLDS)

/* An entry of a DEDUPE record, in memory as in the file. */
struct shmq_taken {
    uint64_t hash[2];
    uint64_t seq;
    int64_t until; /* wall ns                                                           */
};

/* An entry of an INDEX record: where a batch begins. */
struct shmq_indexed_batch {
    uint64_t offset;
    uint64_t batch;
    uint64_t last_seq; /* of that BATCH                                                 */
};

/* What a queue has counted, in a STATE record; in the order of the statistics. */
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
    uint8_t reason;        /* PUT, UPDATE: enum shmq_reason, where DEAD                 */
    uint16_t deliveries;   /* PUT, UPDATE                                               */
    uint64_t seq;          /* PUT, UPDATE                                               */
    int64_t put_at;        /* PUT                                                       */
    uint32_t body_bytes;   /* PUT                                                       */
    uint32_t meta_bytes;
    const void *body;      /* in the record, it begins at a multiple of 8               */
    const void *meta;      /*   and this stands right behind it                         */
    uint64_t group;
    int64_t expires;
    int64_t until;
    int64_t dead_at;
    uint64_t origin_queue;
    uint64_t origin_seq;
    uint32_t count;        /* SETTLE, DEDUPE, INDEX: entries                            */
    const void *entries;   /* SETTLE: uint64_t; struct shmq_taken; struct shmq_indexed_batch */
    uint64_t batch;        /* BATCH: its number; END: the last one's                    */
    int64_t wall;          /* BATCH: when it was made                                   */
    uint64_t last_seq;     /* BATCH, STATE, END: the last sequence number given         */
    uint64_t bytes;        /* BATCH: of the records that follow it                      */
    uint32_t crc;          /* BATCH: CRC-32C of these bytes                             */
    uint64_t batches;      /* END: in this file                                         */
    uint64_t puts;         /* END: PUT records in this file                             */
    uint64_t index;        /* FOOTER: where the first INDEX record begins               */
    uint64_t end;          /* FOOTER: where END begins                                  */
    uint64_t totals[SHMQ_TOTALS]; /* STATE                                              */
};

/* ---- encoding ---- */

/* Bytes of the whole record, a multiple of 8. 0 if no record can hold that much. */
size_t shmq_record_size(const struct shmq_record *r);

/* Writes the record to `at`, which has room for shmq_record_size and stands at a multiple of
 * 8; returns what is behind it. */
unsigned char *shmq_record_write(unsigned char *at, uint32_t salt, const struct shmq_record *r);

/* The same of a PUT in two steps, so that the caller copies body and meta itself:
 * shmq_record_begin writes all in front of them and what pads them, and returns where the
 * body goes; meta goes right behind it. shmq_record_seal writes the checksum, of any record,
 * and returns what is behind it. Nothing has to be undone if it is never sealed. */
unsigned char *shmq_record_begin(unsigned char *at, const struct shmq_record *r);
unsigned char *shmq_record_seal(unsigned char *at, uint32_t salt);

/* Seals all whole records in `bytes` anew, for a file with another salt; they must be our own:
 * of what was read shmq_record_read says whether it is a record. */
void shmq_records_seal(unsigned char *bytes, size_t size, uint32_t salt);

/* ---- decoding ---- */

enum shmq_read {
    SHMQ_READ_OK = 0,
    SHMQ_READ_END,       /* words of 0, or no bytes left                                */
    SHMQ_READ_CUT,       /* longer than what is there                                   */
    SHMQ_READ_CRC,       /* the checksum is not that of the bytes                       */
    SHMQ_READ_TYPE,      /* the checksum is right, and there is no such type            */
    SHMQ_READ_MALFORMED, /* the checksum is right, and the fields contradict each other */
};

/* Reads the record at `bytes`, of which `size` may be looked at. For OK, TYPE and MALFORMED
 * `next` becomes its size. Pointers of `r` lead into `bytes`. Without `verify` the checksum is
 * not compared: for what stands in a batch of which the checksum was right. */
enum shmq_read shmq_record_read(const unsigned char *bytes, size_t size, uint32_t salt, bool verify,
                                struct shmq_record *r, size_t *next);

/* Entries of a record that was read, or is to be written. `at` < count. */
uint64_t shmq_record_settled(const struct shmq_record *r, uint32_t at);
struct shmq_taken shmq_record_taken(const struct shmq_record *r, uint32_t at);
struct shmq_indexed_batch shmq_record_indexed(const struct shmq_record *r, uint32_t at);

#endif
