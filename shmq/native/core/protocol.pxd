# Frames and requests in the C core: shmq/core/protocol. The headers document them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "protocol/frame.h" nogil:
    enum: SHMQ_FRAME_HEADER, SHMQ_FRAME_MAX, SHMQ_FRAME_MORE, SHMQ_FRAME_FOREVER
    enum: SHMQ_T_HELLO, SHMQ_T_PRODUCE, SHMQ_T_PRODUCE_BATCH, SHMQ_T_CONSUME
    enum: SHMQ_T_SUBSCRIBE, SHMQ_T_UNSUBSCRIBE
    enum: SHMQ_T_DELIVER, SHMQ_T_ACK, SHMQ_T_NACK, SHMQ_T_RETURN, SHMQ_T_PEEK, SHMQ_T_REPLY
    enum: SHMQ_FLAG_WHERE, SHMQ_FLAG_TELLS, SHMQ_T_HANDED
    enum: SHMQ_T_LEASE_RUN, SHMQ_T_LEASE_AGAIN, SHMQ_T_READ_RUN
    enum: SHMQ_FLAG_PROPERTIES, SHMQ_FLAG_DURABLE
    enum: SHMQ_S_OK, SHMQ_S_QUEUE_EMPTY, SHMQ_S_NO_QUEUE, SHMQ_S_INTERNAL, SHMQ_S_NO_SPACE
    enum: SHMQ_S_FORBIDDEN
    enum: SHMQ_S_BAD_MAGIC, SHMQ_S_BAD_REQUEST, SHMQ_S_BUSY, SHMQ_S_LEASE_EXPIRED
    enum: SHMQ_S_DUPLICATE

    struct shmq_frame:
        uint32_t length, id
        uint16_t status
        uint8_t type

    struct shmq_reader:
        const unsigned char *at
        const unsigned char *end
        bint bad

    int shmq_frame_read(const unsigned char *at, shmq_frame *frame)
    size_t shmq_left(const shmq_reader *r)
    const unsigned char *shmq_read_bytes(shmq_reader *r, size_t size)
    uint8_t shmq_read8(shmq_reader *r)
    uint16_t shmq_read16(shmq_reader *r)
    uint32_t shmq_read32(shmq_reader *r)
    uint64_t shmq_read64(shmq_reader *r)
    uint32_t shmq_load32(const unsigned char *at)
    uint64_t shmq_load64(const unsigned char *at)
    unsigned char *shmq_store16(unsigned char *at, uint16_t value)
    unsigned char *shmq_store32(unsigned char *at, uint32_t value)
    unsigned char *shmq_store64(unsigned char *at, uint64_t value)


cdef extern from "protocol/request.h" nogil:
    struct shmq_buffer:
        unsigned char *data
        size_t start, end, room

    bint shmq_buffer_reserve(shmq_buffer *b, size_t size)
    void shmq_buffer_take(shmq_buffer *b, size_t size, size_t keep)
    void shmq_buffer_free(shmq_buffer *b)
    unsigned char *shmq_request(shmq_buffer *b, uint8_t type, uint32_t id, const char *name,
                                uint16_t name_bytes, uint32_t rest)
