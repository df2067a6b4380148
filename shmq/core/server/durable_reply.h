/* Durable replies: answers that are held back until what they answer is on disk. */
#ifndef SHMQ_SERVER_DURABLE_REPLY_H
#define SHMQ_SERVER_DURABLE_REPLY_H

#include "server/server.h"

/* What is answered, and when. */
struct shmq_durable_reply {
    struct shmq_attached_queue
        *attached_queue; /* once its queue has `seq` on disk; NULL: at once             */
    uint64_t seq;
    uint64_t ticket;        /* not 0: once policy has said what the answer is              */
    char *why;              /* text, ours to free; or NULL, and the payload is             */
    uint32_t why_bytes;
    uint32_t id;
    uint16_t status;
    uint8_t bytes;
    unsigned char payload[12];
};

/* Answers when that is due, behind what was promised before. `why` is copied. */
void shmq_durable_reply(struct shmq_session *session,
                        const struct shmq_durable_reply *durable_reply, const char *why);

/* Durable replies an answer that policy gives by shmq_durable_reply_settle, by the ticket: never
 * 0. */
uint64_t shmq_durable_reply_later(struct shmq_session *session, uint32_t id);
void shmq_durable_reply_settle(struct shmq_session *session, uint64_t ticket, uint16_t status,
                               const char *payload, uint32_t bytes);

/* Looks after the attached queue's durable replies: has its journal asked for them. */
void shmq_durable_replies_ask(struct shmq_attached_queue *attached_queue);

/* The journal of the attached queue's queue may have come further: answers what is on disk, of
 * every session. Whether anything is still promised at the attached queue. */
bool shmq_attached_queue_confirm(struct shmq_attached_queue *attached_queue);

/* The attached queue is no more: what is not on disk is answered with that status. */
void shmq_durable_replies_end(struct shmq_attached_queue *attached_queue, uint16_t status);

/* The session's will not be kept. */
void shmq_durable_replies_drop(struct shmq_session *session);

#endif
