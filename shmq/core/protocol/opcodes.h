/* The numbers of the wire protocol: opcodes.toml, by tools/protocol.py. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SHMQ_FRAME_MAGIC 0xDEADBEEFu
#define SHMQ_FRAME_VERSION 1
#define SHMQ_FRAME_HEADER 16u
#define SHMQ_FRAME_MAX 16777216u
#define SHMQ_FRAME_HELLO_MAX 4096u
#define SHMQ_FRAME_PING_MAX 64u
#define SHMQ_FRAME_MORE 0x0100
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
    SHMQ_T_HOLD = 0x57,
    SHMQ_T_STAGE = 0x58,
    SHMQ_T_PUBLISH = 0x59,
    SHMQ_T_STAGED = 0x5A,
    SHMQ_T_HANDED = 0x5B,
    SHMQ_T_SCHEMA = 0x5C,
    SHMQ_T_RETURN = 0x5D,
    SHMQ_T_PEEK = 0x5E,
    SHMQ_T_REDRIVE = 0x5F,
    SHMQ_T_STREAM_CREATE = 0x60,
    SHMQ_T_STREAM_DELETE = 0x61,
    SHMQ_T_STREAM_LIST = 0x62,
    SHMQ_T_STREAM_INFO = 0x63,
    SHMQ_T_APPEND = 0x64,
    SHMQ_T_FETCH = 0x65,
    SHMQ_T_OFFSET_AT = 0x66,
    SHMQ_T_SEATS = 0x67,
    SHMQ_T_JOIN = 0x68,
    SHMQ_T_HEARTBEAT = 0x69,
    SHMQ_T_COMMIT = 0x6A,
    SHMQ_T_LEAVE = 0x6B,
    SHMQ_T_SHARE_TAKE = 0x6C,
    SHMQ_T_SHARE_SETTLE = 0x6D,
    SHMQ_T_STREAM_GROUPS = 0x6E,
    SHMQ_T_REPARTITION = 0x6F,
    SHMQ_T_LEASES = 0x70,
    SHMQ_T_READY = 0x71,
    SHMQ_T_TABLE = 0x72,
    SHMQ_T_NAMED_LEASE = 0x73,
    SHMQ_T_REPLY = 0x7F,
};

enum shmq_frame_status {
    SHMQ_S_OK = 0,
    SHMQ_S_QUEUE_FULL = 1,
    SHMQ_S_QUEUE_EMPTY = 2,
    SHMQ_S_NO_QUEUE = 3,
    SHMQ_S_QUEUE_EXISTS = 4,
    SHMQ_S_BAD_REQUEST = 5,
    SHMQ_S_TOO_LARGE = 6,
    SHMQ_S_LEASE_EXPIRED = 7,
    SHMQ_S_DUPLICATE = 8,
    SHMQ_S_UNSUPPORTED = 9,
    SHMQ_S_NO_SPACE = 10,
    SHMQ_S_SHUTTING_DOWN = 11,
    SHMQ_S_INTERNAL = 12,
    SHMQ_S_FORBIDDEN = 13,
    SHMQ_S_OUT_OF_RANGE = 14,
    SHMQ_S_FENCED = 15,
    SHMQ_S_OUT_OF_SEQUENCE = 16,
    SHMQ_S_NO_GROUP = 17,
    SHMQ_S_BUSY = 18,
    SHMQ_S_DAMAGED = 19,
    SHMQ_S_BAD_MAGIC = 0x8001,
    SHMQ_S_BAD_VERSION = 0x8002,
    SHMQ_S_FRAME_TOO_LARGE = 0x8003,
    SHMQ_S_UNAUTHORIZED = 0x8004,
    SHMQ_S_TIMED_OUT = 0x8005,
};

enum shmq_frame_flag {
    SHMQ_FLAG_PROPERTIES = 0x01, /* PRODUCE, a message of a PRODUCE_BATCH, DELIVER */
    SHMQ_FLAG_DURABLE = 0x02, /* PRODUCE, PRODUCE_BATCH itself, APPEND */
    SHMQ_FLAG_SETTLED = 0x01, /* CONSUME, SUBSCRIBE */
    SHMQ_FLAG_WHERE = 0x04, /* CONSUME, SUBSCRIBE */
    SHMQ_FLAG_TELLS = 0x08, /* SUBSCRIBE */
    SHMQ_FLAG_REDELIVERED = 0x02, /* DELIVER */
    SHMQ_FLAG_PRODUCER = 0x04, /* APPEND */
    SHMQ_FLAG_GAPS = 0x08, /* APPEND */
};

enum shmq_right {
    SHMQ_MAY_PRODUCE = 0x01,
    SHMQ_MAY_CONSUME = 0x02,
    SHMQ_MAY_ADMIN = 0x04,
};

/* Who carries a request out, and how it finds what it is about. */
enum shmq_path {
    SHMQ_PATH_NONE = 0, /* no such type exists, or only a server sends it                */
    SHMQ_PATH_ENGINE,   /* the engine                                                      */
    SHMQ_PATH_POLICY,   /* policy; no name                                                 */
    SHMQ_PATH_QUEUE,    /* policy, by a name that the session must have a right to         */
    SHMQ_PATH_STREAM,   /* policy, by a name; policy checks the rights                     */
};

/* What a request to policy has behind the name, if there is one. */
enum shmq_form {
    SHMQ_FORM_BYTES = 0, /* `least` bytes, or more                                         */
    SHMQ_FORM_NOTHING,
    SHMQ_FORM_MAP,
    SHMQ_FORM_MAP_OR_NOTHING,
};

struct shmq_operation {
    uint8_t path;    /* enum shmq_path                                                     */
    uint8_t form;    /* enum shmq_form                                                     */
    uint8_t least;   /* of SHMQ_FORM_BYTES: how many                                       */
    bool silent;     /* a message id of 0 asks for no answer                               */
    bool draining;   /* carried out while the server shuts down, too                       */
    const char *why; /* what a refusal of another form says                                */
};

/* The operations by type: a `static const struct shmq_operation [256]` is made of it. */
#define SHMQ_OPERATIONS \
    [SHMQ_T_HELLO] = {.path = SHMQ_PATH_POLICY, .form = SHMQ_FORM_MAP, .draining = true,                       \
        .why = "this type carries one msgpack map"},                                                           \
    [SHMQ_T_PING] = {.path = SHMQ_PATH_ENGINE, .draining = true},                                              \
    [SHMQ_T_CREATE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP_OR_NOTHING,                              \
        .why = "the options are not one msgpack map"},                                                         \
    [SHMQ_T_DELETE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_NOTHING,                                     \
        .why = "behind the name is nothing more"},                                                             \
    [SHMQ_T_PURGE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_NOTHING,                                      \
        .why = "behind the name is nothing more"},                                                             \
    [SHMQ_T_LIST] = {.path = SHMQ_PATH_POLICY, .form = SHMQ_FORM_MAP_OR_NOTHING,                               \
        .why = "this type carries one msgpack map"},                                                           \
    [SHMQ_T_STATS] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_NOTHING,                                      \
        .why = "behind the name is nothing more"},                                                             \
    [SHMQ_T_PRODUCE] = {.path = SHMQ_PATH_ENGINE, .silent = true},                                             \
    [SHMQ_T_PRODUCE_BATCH] = {.path = SHMQ_PATH_ENGINE, .silent = true},                                       \
    [SHMQ_T_CONSUME] = {.path = SHMQ_PATH_ENGINE},                                                             \
    [SHMQ_T_SUBSCRIBE] = {.path = SHMQ_PATH_ENGINE},                                                           \
    [SHMQ_T_UNSUBSCRIBE] = {.path = SHMQ_PATH_ENGINE, .draining = true},                                       \
    [SHMQ_T_DELIVER] = {.path = SHMQ_PATH_NONE},                                                               \
    [SHMQ_T_ACK] = {.path = SHMQ_PATH_ENGINE, .silent = true, .draining = true},                               \
    [SHMQ_T_NACK] = {.path = SHMQ_PATH_ENGINE, .silent = true, .draining = true},                              \
    [SHMQ_T_REJECT] = {.path = SHMQ_PATH_ENGINE, .silent = true, .draining = true},                            \
    [SHMQ_T_EXTEND] = {.path = SHMQ_PATH_ENGINE, .silent = true, .draining = true},                            \
    [SHMQ_T_COLUMNS] = {.path = SHMQ_PATH_ENGINE},                                                             \
    [SHMQ_T_LEASE_RUN] = {.path = SHMQ_PATH_ENGINE},                                                           \
    [SHMQ_T_LEASE_AGAIN] = {.path = SHMQ_PATH_ENGINE},                                                         \
    [SHMQ_T_READ_RUN] = {.path = SHMQ_PATH_ENGINE},                                                            \
    [SHMQ_T_EXCHANGE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP,                                       \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_ROUTE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_BYTES, .least = 8,                            \
        .why = "behind the name are a map, properties and a body"},                                            \
    [SHMQ_T_EXCHANGES] = {.path = SHMQ_PATH_POLICY, .form = SHMQ_FORM_MAP,                                     \
        .why = "this type carries one msgpack map"},                                                           \
    [SHMQ_T_HOLD] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 16,                           \
        .why = "a HOLD has at least 16 bytes behind the name"},                                                \
    [SHMQ_T_STAGE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_BYTES, .least = 8,                            \
        .why = "behind the name are a map and rows"},                                                          \
    [SHMQ_T_PUBLISH] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP,                                        \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_STAGED] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP,                                         \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_HANDED] = {.path = SHMQ_PATH_ENGINE, .draining = true},                                            \
    [SHMQ_T_SCHEMA] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP,                                         \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_RETURN] = {.path = SHMQ_PATH_ENGINE, .draining = true},                                            \
    [SHMQ_T_PEEK] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_BYTES, .least = 4,                             \
        .why = "behind the name is one u32, and at most an expression"},                                       \
    [SHMQ_T_REDRIVE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_BYTES, .least = 4,                          \
        .why = "behind the name is one u32, and at most an expression"},                                       \
    [SHMQ_T_STREAM_CREATE] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_MAP_OR_NOTHING,                      \
        .why = "the options are not one msgpack map"},                                                         \
    [SHMQ_T_STREAM_DELETE] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_NOTHING,                             \
        .why = "behind the name is nothing more"},                                                             \
    [SHMQ_T_STREAM_LIST] = {.path = SHMQ_PATH_POLICY, .form = SHMQ_FORM_NOTHING,                               \
        .why = "this type carries nothing"},                                                                   \
    [SHMQ_T_STREAM_INFO] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_NOTHING,                               \
        .why = "behind the name is nothing more"},                                                             \
    [SHMQ_T_APPEND] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 22,                         \
        .why = "an APPEND has at least 22 bytes behind the name"},                                             \
    [SHMQ_T_FETCH] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 24,                          \
        .why = "a FETCH has at least 24 bytes behind the name"},                                               \
    [SHMQ_T_OFFSET_AT] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 20,                      \
        .why = "an OFFSET_AT has at least 20 bytes behind the name"},                                          \
    [SHMQ_T_SEATS] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 19,                          \
        .why = "a SEATS has at least 19 bytes behind the name"},                                               \
    [SHMQ_T_JOIN] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 18,                           \
        .why = "a JOIN has at least 18 bytes behind the name"},                                                \
    [SHMQ_T_HEARTBEAT] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 26,                      \
        .why = "a HEARTBEAT has at least 26 bytes behind the name"},                                           \
    [SHMQ_T_COMMIT] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 18, .draining = true,       \
        .why = "a COMMIT has at least 18 bytes behind the name"},                                              \
    [SHMQ_T_LEAVE] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 18, .draining = true,        \
        .why = "a LEAVE has at least 18 bytes behind the name"},                                               \
    [SHMQ_T_SHARE_TAKE] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 23,                     \
        .why = "a SHARE_TAKE has at least 23 bytes behind the name"},                                          \
    [SHMQ_T_SHARE_SETTLE] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 27, .draining = true, \
        .why = "a SHARE_SETTLE has at least 27 bytes behind the name"},                                        \
    [SHMQ_T_STREAM_GROUPS] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_MAP,                                 \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_REPARTITION] = {.path = SHMQ_PATH_STREAM, .form = SHMQ_FORM_BYTES, .least = 12,                    \
        .why = "a REPARTITION has at least 12 bytes behind the name"},                                         \
    [SHMQ_T_LEASES] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_BYTES, .least = 12,                          \
        .why = "behind the name are one u64 and one u32"},                                                     \
    [SHMQ_T_READY] = {.path = SHMQ_PATH_ENGINE},                                                               \
    [SHMQ_T_TABLE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP,                                          \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_NAMED_LEASE] = {.path = SHMQ_PATH_QUEUE, .form = SHMQ_FORM_MAP,                                    \
        .why = "behind the name is one msgpack map"},                                                          \
    [SHMQ_T_REPLY] = {.path = SHMQ_PATH_NONE},
