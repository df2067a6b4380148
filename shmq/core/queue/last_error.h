/* The error of a failed delivery as a message keeps it: a msgpack map of `line`, `type`, `trace` and
 * `at`, of which absent parts are left out; see shmq/model/failure.py. The line begins with the type. */
#pragma once

#include "queue/message.h"

/* A limit below it stores no error that is longer than the limit: too little of one would be left. */
#define SHMQ_LEAST_ERROR 128u

/* The type of the error; empty if it has none. */
struct shmq_text shmq_error_type(struct shmq_text error);

/* The error in at most `most` bytes, and SHMQ_ERROR_BYTES: unchanged if it fits, else truncated in
 * `to`, which has as many bytes, else empty. Each text loses its middle, and no character is split. */
struct shmq_text shmq_fit_error(struct shmq_text error, uint32_t most, unsigned char *to);
