/* Promises: answers that are held back until what they answer is on disk. */
#ifndef SHMQ_PROMISE_H
#define SHMQ_PROMISE_H

#include "wire.h"

/* What is answered, and when. */
struct shmq_promise {
    struct shmq_desk *desk; /* once its queue has `seq` on disk; NULL: at once             */
    uint64_t seq;
    char *why;              /* text, ours to free; or NULL, and the payload is             */
    uint32_t id;
    uint16_t status;
    uint8_t bytes;
    unsigned char payload[12];
};

/* Answers when that is due, behind what was promised before. `why` is copied. */
void shmq_promise(struct shmq_session *session, const struct shmq_promise *promise,
                  const char *why);

/* Looks after the desk's promises: has its journal asked for them. */
void shmq_promises_ask(struct shmq_desk *desk);

/* The journal of the desk's queue may have come further: answers what is on disk, of every
 * session. Whether anything is still promised at the desk. */
bool shmq_desk_confirm(struct shmq_desk *desk);

/* The desk is no more: what is not on disk is answered with that status. */
void shmq_promises_end(struct shmq_desk *desk, uint16_t status);

/* The session's will not be kept. */
void shmq_promises_drop(struct shmq_session *session);

#endif
