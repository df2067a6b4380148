#include "crc32c.h"

#define POLYNOMIAL 0x82F63B78u /* reflected */

uint32_t shmq_crc32c(uint32_t crc, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

    crc = ~crc;
    while (size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
    }
    return ~crc;
}
