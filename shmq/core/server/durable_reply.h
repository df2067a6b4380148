/* Durable replies: replies that are held back until the changes they report are on disk. */
#ifndef SHMQ_SERVER_DURABLE_REPLY_H
#define SHMQ_SERVER_DURABLE_REPLY_H

#include "server/server.h"

/* A reply that is held back, and its condition. */
struct shmq_durable_reply {
    struct shmq_attached_queue
        *attached_queue; /* once its queue has `seq` on disk; NULL: at once             */
    uint64_t seq;
    uint64_t ticket;        /* not 0 until policy has given the reply                      */
    char *why;              /* text, freed with this; or NULL: use the payload             */
    uint32_t why_bytes;
    uint32_t id;
    uint16_t status;
    uint8_t bytes;
    unsigned char payload[12];
};

/* Replies when the condition holds, after all earlier durable replies. `why` is copied. */
void shmq_durable_reply(struct shmq_session *session,
                        const struct shmq_durable_reply *durable_reply, const char *why);

/* Reserves the place of a reply that policy gives with shmq_durable_reply_settle; returns its
 * ticket, never 0. */
uint64_t shmq_durable_reply_later(struct shmq_session *session, uint32_t id);
void shmq_durable_reply_settle(struct shmq_session *session, uint64_t ticket, uint16_t status,
                               const char *payload, uint32_t bytes);

/* Asks the queue's journal for what the attached queue's durable replies wait for. */
void shmq_durable_replies_ask(struct shmq_attached_queue *attached_queue);

/* The journal of the attached queue may have progressed: sends the replies whose changes are on
 * disk, for every session. Returns whether any durable reply still waits for the attached queue. */
bool shmq_attached_queue_confirm(struct shmq_attached_queue *attached_queue);

/* The attached queue is gone: replies whose changes are not on disk get that status. */
void shmq_durable_replies_end(struct shmq_attached_queue *attached_queue, uint16_t status);

/* Drops the session's durable replies. */
void shmq_durable_replies_drop(struct shmq_session *session);

#endif
