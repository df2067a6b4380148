/* What the requests of a session use: its replies, and waiting with a request. */
#ifndef SHMQ_SERVER_SESSION_H
#define SHMQ_SERVER_SESSION_H

#include "server/server.h"

/* It ends: there is no memory for it, or its peer reads nothing. */
void shmq_session_break(struct shmq_session *session);

/* Room for `size` bytes to send, or NULL; the session is broken then. */
unsigned char *shmq_session_room(struct shmq_session *session, size_t size);

/* Writes a REPLY; message id 0 is answered, too. */
void shmq_reply(struct shmq_session *session, uint32_t id, uint16_t status, const void *payload,
                uint32_t bytes);

/* Writes a REPLY whose payload says why, for a status below 0x8000. */
void shmq_refuse_request(struct shmq_session *session, uint32_t id, uint16_t status,
                         const char *why);

/* The same, where an answer is wanted: message id 0 gets none. */
static inline void shmq_refuse_if_asked(struct shmq_session *session, uint32_t id, uint16_t status,
                                        const char *why)
{
    if (id)
        shmq_refuse_request(session, id, status, why);
}

/* What policy answers is answered later, by shmq_answer_late, and holds nothing back: false if
 * too many of the session's requests wait. Once the peer sends no more, it is not answered. */
bool shmq_answer_later(struct shmq_session *session);
void shmq_answer_late(struct shmq_session *session, uint32_t id, uint16_t status,
                      const void *payload, uint32_t bytes);

/* There is something to send, or to do, for it. */
void shmq_mark_pending(struct shmq_session *session);

/* Frames that follow each other in what was received. */
struct shmq_frames {
    const unsigned char *at, *end;
};

/* Nothing that follows is carried out until shmq_unpark. */
void shmq_park(struct shmq_session *session);

/* The same, and the frame that is being carried out is put back: it is carried out again then.
 * `at`: so is what was read behind it, from there on; NULL: it was the last. Until its end no
 * answer is written. */
void shmq_put_back(struct shmq_session *session, const unsigned char *at);

/* The request cannot have the attached queue's lock: it is put back until the lock is free. False
 * if that was waited for long enough: the request is to be refused with SHMQ_S_BUSY. */
bool shmq_park_at(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                  const unsigned char *at);

/* Whether the next frame is whole and one of that type, with a good header. */
bool shmq_next_is(const struct shmq_session *session, const struct shmq_frames *frames,
                  uint8_t type, struct shmq_frame *frame);

/* The request that was parked without an attached queue is answered, or may be carried out again:
 * goes on behind it once the session is told of, see shmq_engine_next_pending. */
void shmq_unpark(struct shmq_session *session);

/* Why the frame with that header ends the connection, or SHMQ_S_OK. */
uint16_t shmq_fatal_status(const struct shmq_session *session, const unsigned char *header,
                           struct shmq_frame *frame);

#endif
