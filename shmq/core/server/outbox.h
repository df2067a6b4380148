/* What a session has to send: bytes, and among them bodies that go from the queue itself. */
#ifndef SHMQ_SERVER_OUTBOX_H
#define SHMQ_SERVER_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct shmq_attached_queue;

/* A body that is sent from where it lies: pinned until it has gone. */
struct shmq_outgoing_body {
    size_t before; /* it goes before this one of the bytes                             */
    const unsigned char *body;
    size_t bytes;
    struct shmq_attached_queue *attached_queue;
    uint32_t slot;
};

struct shmq_outbox {
    unsigned char *bytes;
    size_t sent, used, room;     /* bytes[sent] to bytes[used - 1] are to go            */
    struct shmq_outgoing_body
        *outgoing_bodies; /* in their order                                      */
    uint32_t outgoing_body_sent, outgoing_body_used, outgoing_body_room;
    size_t outgoing_body_bytes; /* of the outgoing bodies that are to go                       */
};

/* How much is to go. */
static inline size_t shmq_pending(const struct shmq_outbox *box)
{
    return box->used - box->sent + box->outgoing_body_bytes;
}

/* Room for `size` bytes more behind the last: NULL if there is no memory. Bytes written
 * there count once `used` says so. */
unsigned char *shmq_outbox_room(struct shmq_outbox *box, size_t size);

/* Puts a body behind the last byte. False if there is no memory. */
bool shmq_outbox_put(struct shmq_outbox *box, const unsigned char *body, size_t bytes,
                     struct shmq_attached_queue *attached_queue, uint32_t slot);

/* The next pieces to send, in their order, at most `most`: how many. */
uint32_t shmq_outbox_pieces(const struct shmq_outbox *box, struct iovec *pieces, uint32_t most);

/* So much was sent. Calls `gone` for each outgoing body that has gone. What is to go may move to
 * the engine, so that a peer that never reads all of it makes nothing grow: between two calls,
 * places in `bytes` stay where they are. */
void shmq_outbox_sent(struct shmq_outbox *box, size_t size,
                      void (*gone)(struct shmq_outgoing_body *));

/* Drops all of it. */
void shmq_outbox_clear(struct shmq_outbox *box, void (*gone)(struct shmq_outgoing_body *));

#endif
