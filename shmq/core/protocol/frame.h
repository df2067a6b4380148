/* The frames of the DEADBEEF protocol, version 1, as bytes: docs/internals/protocol.md.
 *
 *   magic u32 | payload length u32 | type u8 | version u8 | status u16 | message id u32
 *
 * All integers are unsigned and in network byte order (base/endian.h). Server (connection.c) and
 * client (request.c, client_connection.pxi) both use this. */
#pragma once

#include "base/endian.h"
#include "protocol/opcodes.h"

struct shmq_frame {
    uint32_t length; /* of the payload, which follows the header                       */
    uint32_t id;
    uint16_t status;
    uint8_t type;
    uint8_t version;
};

/* ---- the header ---- */

/* Reads a header of 16 bytes: SHMQ_S_OK, or its fatal error; the protocol checks magic first, then
 * version. `frame` is filled in any case. */
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

/* Writes a header; returns the place behind it, where the payload goes. */
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
