/* CRC-32C (Castagnoli), as in RFC 3720, appendix B.4. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of `size` bytes; `crc` is 0, or the checksum of the bytes before them. Long inputs
 * use carry-less multiplication, 512 or 256 bits wide, if the processor has it. */
uint32_t shmq_crc32c(uint32_t crc, const void *bytes, size_t size);

/* The same while it copies the bytes: about as fast as the copy alone. */
uint32_t shmq_crc32c_copy(uint32_t crc, void *to, const void *bytes, size_t size);

/* The same with the processor's CRC instruction, or with tables if it has none. */
uint32_t shmq_crc32c_striped(uint32_t crc, const void *bytes, size_t size);

/* The same with tables only, on any processor. */
uint32_t shmq_crc32c_portable(uint32_t crc, const void *bytes, size_t size);
