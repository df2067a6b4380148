# The server's side of the protocol in the C core: shmq/core/server. The headers document it.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from core.base cimport cbool, iovec, sem_t
from core.protocol cimport shmq_frame
from core.queue cimport shmq_filter, shmq_queue, shmq_view


cdef extern from "server/server.h":
    struct shmq_outbox:
        pass

    struct shmq_limits:
        uint32_t max_frame, unsettled
        uint64_t unsettled_bytes
        int64_t handshake, frame, idle
        cbool token_required

    enum: SHMQ_WHY_BYTES

    struct shmq_filter_request:
        shmq_filter filter
        unsigned char *code

    struct shmq_attached_queue:
        shmq_queue *q
        shmq_engine *engine
        void *data
        sem_t *semaphores[2]
        uint32_t *views
        uint32_t durable_replies
        cbool awaited, filtered_awaited, confirming
        const char *name

    struct shmq_large_body:
        cbool active

    struct shmq_session:
        shmq_engine *engine
        void *data
        shmq_outbox out
        shmq_large_body large_body
        uint32_t unsettled, durable_reply_count
        cbool owns, authorised, held, parked, fin, finished, broken

    struct shmq_engine:
        shmq_session *sessions
        int64_t expire_at, retry_at
        void *data
        shmq_limits limits
        unsigned char *scratch
        uint32_t session_count
        cbool draining

    struct shmq_hooks:
        uint16_t (*attach)(shmq_session *session, shmq_attached_queue *attached_queue) noexcept
        void (*detach)(shmq_engine *engine, shmq_attached_queue *attached_queue) noexcept
        uint8_t (*rights)(shmq_session *session, const char *name) noexcept
        void (*answer)(shmq_session *session, const shmq_frame *frame, const char *name,
                       const unsigned char *rest, uint32_t size) noexcept
        uint16_t (*consume)(shmq_session *session, shmq_attached_queue *attached_queue,
                            char *why) noexcept
        void (*refused)(shmq_session *session, uint8_t type, const char *name,
                        uint8_t right) noexcept
        shmq_filter_request *(*compile)(shmq_engine *engine, const unsigned char *text, uint32_t size,
                                char *why) noexcept
        void (*tend)(shmq_attached_queue *attached_queue) noexcept
        void (*failed)(shmq_attached_queue *attached_queue) noexcept
        void (*wait)(shmq_attached_queue *attached_queue, cbool filtered) noexcept
        void (*confirm)(shmq_attached_queue *attached_queue) noexcept


cdef extern from "server/outbox.h":
    size_t shmq_pending(const shmq_outbox *box)
    uint32_t shmq_outbox_pieces(const shmq_outbox *box, iovec *pieces, uint32_t most)


cdef extern from "server/engine.h":
    enum: SHMQ_SCRATCH
    shmq_session *shmq_session_begin(shmq_engine *engine, void *data)
    unsigned char *shmq_session_space(shmq_session *session, size_t *size)
    void shmq_session_received(shmq_session *session, size_t size)
    cbool shmq_session_hold(shmq_session *session, const void *data, size_t size)
    void shmq_session_sent(shmq_session *session, size_t size)
    void shmq_session_finish(shmq_session *session)
    void shmq_session_end(shmq_session *session)
    cbool shmq_session_is_paused(const shmq_session *session)
    cbool shmq_session_is_ending(const shmq_session *session)
    void shmq_reply(shmq_session *session, uint32_t id, uint16_t status, const void *payload,
                    uint32_t size)
    void shmq_refuse(shmq_session *session, uint32_t id, uint16_t status, const char *why)
    void shmq_park(shmq_session *session)
    void shmq_put_back(shmq_session *session, const unsigned char *at)
    void shmq_unpark(shmq_session *session)
    cbool shmq_answer_later(shmq_session *session)
    void shmq_answer_late(shmq_session *session, uint32_t id, uint16_t status,
                          const void *payload, uint32_t size)


cdef extern from "server/server.h":
    uint64_t shmq_durable_reply_later(shmq_session *session, uint32_t id)
    void shmq_durable_reply_settle(shmq_session *session, uint64_t ticket, uint16_t status,
                             const char *payload, uint32_t size)
    cbool shmq_attached_queue_confirm(shmq_attached_queue *attached_queue)


cdef extern from "server/requests.h":
    void shmq_deliver_copy(shmq_session *session, uint32_t id, const shmq_view *view, cbool more)


cdef extern from "server/requests.h":
    cbool shmq_attached_queue_serve(shmq_attached_queue *attached_queue)
    cbool shmq_attached_queue_serve_filtered(shmq_attached_queue *attached_queue, cbool arrived)


cdef extern from "server/server.h":
    void shmq_attached_queue_forget(shmq_attached_queue *attached_queue, uint16_t status)


cdef extern from "server/engine.h":
    cbool shmq_engine_begin(shmq_engine *engine, const shmq_hooks *hooks, void *data,
                           const shmq_limits *limits)
    void shmq_engine_end(shmq_engine *engine)
    void shmq_engine_settle(shmq_engine *engine)
    shmq_session *shmq_engine_next_pending(shmq_engine *engine)
    int64_t shmq_engine_tick(shmq_engine *engine, int64_t now)
    void shmq_engine_drain(shmq_engine *engine)
    void shmq_session_renew_rights(shmq_session *session)
