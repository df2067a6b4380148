/* The output of a session: bytes, and among them bodies that are sent from the queue itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct shmq_attached_queue;

/* A body that is sent in place: pinned until it was sent. */
struct shmq_outgoing_body {
    size_t before; /* it is sent before this one of the bytes */
    const unsigned char *body;
    size_t bytes;
    struct shmq_attached_queue *queue;
    uint32_t slot;
};

struct shmq_outbox {
    unsigned char *bytes;
    size_t sent, used, room;     /* bytes[sent] to bytes[used - 1] are pending */
    struct shmq_outgoing_body *outgoing_bodies; /* in their order */
    uint32_t outgoing_body_sent, outgoing_body_used, outgoing_body_room;
    size_t outgoing_body_bytes; /* of the pending outgoing bodies */
};

/* The number of pending bytes. */
static inline size_t shmq_pending(const struct shmq_outbox *box)
{
    return box->used - box->sent + box->outgoing_body_bytes;
}

/* Room for `size` more bytes at the end: NULL if out of memory. Bytes written there count once
 * `used` includes them. */
unsigned char *shmq_outbox_room(struct shmq_outbox *box, size_t size);

/* Appends a body behind the last byte. False: out of memory. */
bool shmq_outbox_put(struct shmq_outbox *box, const unsigned char *body, size_t bytes,
                     struct shmq_attached_queue *queue, uint32_t slot);

/* The next pieces to send, in order, at most `most`; returns how many. */
uint32_t shmq_outbox_pieces(const struct shmq_outbox *box, struct iovec *pieces, uint32_t most);

/* Notes that `size` bytes were sent, and calls `gone` for each outgoing body that is done. Pending
 * output may move to the start, so that a peer that never reads all of it makes nothing grow:
 * between two calls, places in `bytes` stay valid. */
void shmq_outbox_sent(struct shmq_outbox *box, size_t size,
                      void (*gone)(struct shmq_outgoing_body *));

/* Drops all pending output. */
void shmq_outbox_clear(struct shmq_outbox *box, void (*gone)(struct shmq_outgoing_body *));
