/* What requests need of their session: replies, and waiting. */
#ifndef SHMQ_SERVER_SESSION_H
#define SHMQ_SERVER_SESSION_H

#include "server/server.h"

/* Ends the session: its memory ran out, or its peer reads nothing. */
void shmq_session_break(struct shmq_session *session);

/* Room for `size` bytes of output, or NULL; the session is broken then. */
unsigned char *shmq_session_room(struct shmq_session *session, size_t size);

/* Writes a REPLY; message id 0 is answered, too. */
void shmq_reply(struct shmq_session *session, uint32_t id, uint16_t status, const void *payload,
                uint32_t bytes);

/* Writes a REPLY whose payload gives the reason, for a status below 0x8000. */
void shmq_refuse_request(struct shmq_session *session, uint32_t id, uint16_t status,
                         const char *why);

/* The same if a reply is wanted: message id 0 gets none. */
static inline void shmq_refuse_if_asked(struct shmq_session *session, uint32_t id, uint16_t status,
                                        const char *why)
{
    if (id)
        shmq_refuse_request(session, id, status, why);
}

/* Lets policy answer later, with shmq_answer_late, without holding back other requests: false if
 * too many of the session's requests wait. Once the peer sends no more, it is not answered. */
bool shmq_answer_later(struct shmq_session *session);
void shmq_answer_late(struct shmq_session *session, uint32_t id, uint16_t status,
                      const void *payload, uint32_t bytes);

/* The session has output, or must be closed. */
void shmq_mark_pending(struct shmq_session *session);

/* Consecutive frames in the received bytes. */
struct shmq_frames {
    const unsigned char *at, *end;
};

/* Holds back all later requests until shmq_unpark. */
void shmq_park(struct shmq_session *session);

/* The same, and the current frame is put back, to be carried out again then. `at`: so are the
 * frames read behind it, from there on; NULL: it was the last. No reply is written before the
 * frame's end. */
void shmq_put_back(struct shmq_session *session, const unsigned char *at);

/* Puts the request back until the attached queue's lock is free. False if it has waited long
 * enough: it must be refused with SHMQ_S_BUSY. */
bool shmq_park_at(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                  const unsigned char *at);

/* Whether the next frame is complete and of that type, with a valid header. */
bool shmq_next_is(const struct shmq_session *session, const struct shmq_frames *frames,
                  uint8_t type, struct shmq_frame *frame);

/* The request that was parked without an attached queue is answered, or may be carried out
 * again: the session continues behind it once it is reported, see shmq_engine_next_pending. */
void shmq_unpark(struct shmq_session *session);

/* The fatal status of the frame with that header, or SHMQ_S_OK. */
uint16_t shmq_fatal_status(const struct shmq_session *session, const unsigned char *header,
                           struct shmq_frame *frame);

#endif
