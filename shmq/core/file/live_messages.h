/* The live messages of a queue's files, by sequence number.
 *
 * Files have their messages in the order of the numbers, for the most part. As long as that holds,
 * this is an array in that order, where removed messages leave gaps; from the first one on that
 * comes out of order it is a hash table. */
#ifndef SHMQ_FILE_LIVE_MESSAGES_H
#define SHMQ_FILE_LIVE_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

/* A live message. */
struct shmq_live {
    uint64_t seq;        /* 0: the entry of the hash table is free                      */
    uint64_t location;   /* file << 44 | offset / 8                                     */
    int64_t when;        /* DELAYED: until; DEAD: dead_at                               */
    uint16_t deliveries;
    uint8_t flags;
    uint8_t reason;
    uint32_t size;       /* of its PUT, in units of 8 bytes; 0: no message is here */
};

struct shmq_live_messages {
    struct shmq_live *at;
    uint64_t used;  /* entries to look at: those in order with the gaps, or the whole table */
    uint64_t room;  /* entries there is memory for; of a table: a power of two           */
    uint64_t count; /* messages                                                          */
    bool hashed;
};

/* NULL: no message has that number, which is not 0. */
struct shmq_live *shmq_live_find(const struct shmq_live_messages *m, uint64_t seq);

/* The entry for the message with that number, which the caller fills in; its size is 0 if it is
 * new. Other entries may move. NULL: no memory. */
struct shmq_live *shmq_live_add(struct shmq_live_messages *m, uint64_t seq);

/* Other entries may move. */
void shmq_live_remove(struct shmq_live_messages *m, struct shmq_live *entry);

/* Makes the entries an array of `count` messages in order, to which none can be added. */
void shmq_live_sort(struct shmq_live_messages *m);

void shmq_live_free(struct shmq_live_messages *m);

#endif
