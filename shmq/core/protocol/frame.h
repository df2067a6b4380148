/* The frames of the DEADBEEF protocol, version 1, as bytes: docs/protocol.md.
 *
 *   magic u32 | payload length u32 | type u8 | version u8 | status u16 | message id u32
 *
 * All integers are unsigned and in network byte order (base/endian.h). Server (connection.c) and
 * client (request.c, client_connection.pxi) stand upon this. */
#ifndef SHMQ_PROTOCOL_FRAME_H
#define SHMQ_PROTOCOL_FRAME_H

#include "base/endian.h"

#define SHMQ_FRAME_MAGIC 0xDEADBEEFu
#define SHMQ_FRAME_VERSION 1
#define SHMQ_FRAME_HEADER 16u
#define SHMQ_FRAME_MAX (16u << 20) /* default longest payload of a request             */
#define SHMQ_FRAME_HELLO_MAX 4096u /* and of a first HELLO that brings a token         */
#define SHMQ_FRAME_MORE 0x0100     /* further DELIVERs of the same CONSUME follow      */
#define SHMQ_FRAME_FOREVER 0xFFFFFFFFu

enum shmq_frame_type {
    SHMQ_T_HELLO = 0x01,
    SHMQ_T_PING = 0x02,
    SHMQ_T_CREATE = 0x10,
    SHMQ_T_DELETE = 0x11,
    SHMQ_T_PURGE = 0x12,
    SHMQ_T_LIST = 0x13,
    SHMQ_T_STATS = 0x14,
    SHMQ_T_PRODUCE = 0x20,
    SHMQ_T_PRODUCE_BATCH = 0x21,
    SHMQ_T_CONSUME = 0x30,
    SHMQ_T_SUBSCRIBE = 0x31,
    SHMQ_T_UNSUBSCRIBE = 0x33,
    SHMQ_T_DELIVER = 0x38,
    SHMQ_T_ACK = 0x40,
    SHMQ_T_NACK = 0x41,
    SHMQ_T_REJECT = 0x42,
    SHMQ_T_EXTEND = 0x43,
    SHMQ_T_COLUMNS = 0x50,
    SHMQ_T_LEASE_RUN = 0x51,
    SHMQ_T_LEASE_AGAIN = 0x52,
    SHMQ_T_READ_RUN = 0x53,
    SHMQ_T_EXCHANGE = 0x54,
    SHMQ_T_ROUTE = 0x55,
    SHMQ_T_EXCHANGES = 0x56,
    SHMQ_T_HOLD = 0x57,    /* as those of streams                                          */
    SHMQ_T_STAGE = 0x58,
    SHMQ_T_PUBLISH = 0x59,
    SHMQ_T_STAGED = 0x5A,
    SHMQ_T_HANDED = 0x5B,
    SHMQ_T_SCHEMA = 0x5C,
    SHMQ_T_RETURN = 0x5D,
    SHMQ_T_PEEK = 0x5E,
    SHMQ_T_REDRIVE = 0x5F,
    SHMQ_T_STREAMS = 0x60, /* to 0x6F: streams, for policy to answer                      */
    SHMQ_T_COMMIT = 0x6A,
    SHMQ_T_LEAVE = 0x6B,
    SHMQ_T_SHARE_SETTLE = 0x6D,
    SHMQ_T_REPLY = 0x7F,
};

enum shmq_frame_flag {
    SHMQ_WITH_PROPERTIES = 0x01, /* PRODUCE, DELIVER                                   */
    SHMQ_WHEN_DURABLE = 0x02,    /* PRODUCE                                            */
    SHMQ_SETTLED = 0x01,         /* CONSUME, SUBSCRIBE                                 */
    SHMQ_REDELIVERED = 0x02,     /* DELIVER                                            */
    SHMQ_WHERE = 0x04,           /* CONSUME, SUBSCRIBE: u16 n + n bytes of an expression */
    SHMQ_TELLS = 0x08,           /* SUBSCRIBE: HANDED says what the application has got  */
};

enum shmq_frame_status {
    SHMQ_S_OK = 0,
    SHMQ_S_QUEUE_FULL,
    SHMQ_S_QUEUE_EMPTY,
    SHMQ_S_NO_QUEUE,
    SHMQ_S_QUEUE_EXISTS,
    SHMQ_S_BAD_REQUEST,
    SHMQ_S_TOO_LARGE,
    SHMQ_S_LEASE_EXPIRED,
    SHMQ_S_DUPLICATE,
    SHMQ_S_UNSUPPORTED,
    SHMQ_S_NO_SPACE,
    SHMQ_S_SHUTTING_DOWN,
    SHMQ_S_INTERNAL,
    SHMQ_S_FORBIDDEN,
    SHMQ_S_OUT_OF_RANGE,
    SHMQ_S_FENCED,
    SHMQ_S_OUT_OF_SEQUENCE,
    SHMQ_S_NO_GROUP,
    SHMQ_S_BUSY,
    SHMQ_S_DAMAGED,
    SHMQ_S_BAD_MAGIC = 0x8001, /* from 0x8000 on the connection is closed              */
    SHMQ_S_BAD_VERSION,
    SHMQ_S_FRAME_TOO_LARGE,
    SHMQ_S_UNAUTHORIZED,
    SHMQ_S_TIMED_OUT,
};

struct shmq_frame {
    uint32_t length; /* of the payload, which follows the header                       */
    uint32_t id;
    uint16_t status;
    uint8_t type;
    uint8_t version;
};

/* ---- the header ---- */

/* Reads a header of 16 bytes: SHMQ_S_OK, or what is fatal about it, checked in the order of
 * the protocol: magic, version. `frame` is filled in any case. */
static inline enum shmq_frame_status shmq_frame_read(const unsigned char *at,
                                                     struct shmq_frame *frame)
{
    frame->length = shmq_load32(at + 4);
    frame->type = at[8];
    frame->version = at[9];
    frame->status = shmq_load16(at + 10);
    frame->id = shmq_load32(at + 12);
    if (shmq_load32(at) != SHMQ_FRAME_MAGIC)
        return SHMQ_S_BAD_MAGIC;
    return frame->version == SHMQ_FRAME_VERSION ? SHMQ_S_OK : SHMQ_S_BAD_VERSION;
}

/* Writes a header; returns the byte behind it, where the payload goes. */
static inline unsigned char *shmq_frame_write(unsigned char *at, uint8_t type, uint16_t status,
                                              uint32_t id, uint32_t length)
{
    at = shmq_store32(at, SHMQ_FRAME_MAGIC);
    at = shmq_store32(at, length);
    *at++ = type;
    *at++ = SHMQ_FRAME_VERSION;
    at = shmq_store16(at, status);
    return shmq_store32(at, id);
}

#endif
