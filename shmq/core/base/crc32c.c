#include "base/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82F63B78u /* reflected */
#define LANE 1024u             /* bytes of each of the three streams of a stripe */
#define STRIPE (3 * LANE)
#define PIECE (2 * STRIPE)     /* copied at a time, then summed while in the L1 cache          */

/* `slice[k][b]`: byte b, followed by k bytes of zeros. `skip[k][b]`: byte k of a checksum, if
 * it is b, followed by LANE bytes of zeros. Written once, before main. */
static uint32_t slice[8][256];
static uint32_t skip[4][256];
static bool native;

static inline uint64_t load(const unsigned char *at)
{
    uint64_t word;

    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint32_t load_half(const unsigned char *at)
{
    uint32_t word;

    memcpy(&word, at, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

/* Slicing by 8 (Kounavis, Berry: A Systematic Approach to Building High Performance,
 * Software-based, CRC Generators, 2005). */
uint32_t shmq_crc32c_portable(uint32_t crc, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

    crc = ~crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = load(at) ^ crc;

        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= slice[7 - k][word >> 8 * k & 0xFF];
    }
    while (size--)
        crc = crc >> 8 ^ slice[0][(crc ^ *at++) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define NATIVE __attribute__((target("sse4.2,crc32")))
#define STEP8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define STEP4(crc, word) _mm_crc32_u32((crc), (word))
#define STEP1(crc, byte) _mm_crc32_u8((crc), (byte))

static bool has_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define NATIVE __attribute__((target("+crc")))
#define CRC_BIT (1ul << 7) /* HWCAP_CRC32 */

/* In assembly, as arm_acle.h has the intrinsics only where every file is built for them. */
NATIVE static inline uint32_t step8(uint32_t crc, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

NATIVE static inline uint32_t step4(uint32_t crc, uint32_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(crc) : "r"(word));
    return crc;
}

NATIVE static inline uint32_t step1(uint32_t crc, uint32_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}
#define STEP8(crc, word) step8((crc), (word))
#define STEP4(crc, word) step4((crc), (word))
#define STEP1(crc, byte) step1((crc), (byte))

static bool has_instruction(void) { return getauxval(AT_HWCAP) & CRC_BIT; }
#else
static bool has_instruction(void) { return false; }
#endif

#ifdef NATIVE
static uint32_t skip_lane(uint32_t crc)
{
    return skip[0][crc & 0xFF] ^ skip[1][crc >> 8 & 0xFF] ^ skip[2][crc >> 16 & 0xFF] ^
           skip[3][crc >> 24];
}

/* The instruction takes three cycles and one can start in each, so three streams of bytes are as
 * fast as one. The checksum is linear: the checksum of one stream, advanced over zeros for the
 * next one, combines with the checksum of that. */
NATIVE static uint32_t crc_native(uint32_t crc, const unsigned char *at, size_t size)
{
    crc = ~crc;
    for (; size >= STRIPE; size -= STRIPE, at += STRIPE) {
        uint32_t second = 0, third = 0;

        for (size_t i = 0; i < LANE; i += 8) {
            crc = STEP8(crc, load(at + i));
            second = STEP8(second, load(at + LANE + i));
            third = STEP8(third, load(at + 2 * LANE + i));
        }
        crc = skip_lane(skip_lane(crc) ^ second) ^ third;
    }
    for (; size >= 8; size -= 8, at += 8)
        crc = STEP8(crc, load(at));
    if (size >= 4) {
        crc = STEP4(crc, load_half(at));
        size -= 4, at += 4;
    }
    while (size--)
        crc = STEP1(crc, *at++);
    return ~crc;
}
#endif

#if defined(__x86_64__)
#define FOLDS __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2,crc32")))
#define FOLDS_HALF __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2,crc32")))
#define FOLDED 256u     /* bytes folded at a time                     */
#define WORTH_FOLDING 512u

/* The distances by which the halves of a block are moved: see make_powers. */
static struct {
    uint64_t first, second;
} by_16, by_32, by_64, by_256;
static bool folds, folds_half; /* 512 bits wide; 256 */

static bool has_folding(void)
{
    return native && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}

/* x^n mod P, as 64 bits in reflected form. */
static uint64_t power(unsigned n)
{
    uint32_t r = 0x80000000u;

    while (n--)
        r = r >> 1 ^ (POLYNOMIAL & -(r & 1));
    return (uint64_t)r << 32;
}

/* The product of two reflected 64-bit words has an extra factor x, hence the exponent is one
 * less. */
static void make_powers(void)
{
    by_16.first = power(8 * 16 + 64 - 1), by_16.second = power(8 * 16 - 1);
    by_32.first = power(8 * 32 + 64 - 1), by_32.second = power(8 * 32 - 1);
    by_64.first = power(8 * 64 + 64 - 1), by_64.second = power(8 * 64 - 1);
    by_256.first = power(8 * 256 + 64 - 1), by_256.second = power(8 * 256 - 1);
}

#define FOLD_512(v, by, next)                                        \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(v, by, 0x00), \
                              _mm512_clmulepi64_epi128(v, by, 0x11), next, 0x96 /* xor */)
#define FOLD_256(v, by, next)                                                 \
    _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(v, by, 0x00),  \
                                      _mm256_clmulepi64_epi128(v, by, 0x11)), \
                     next)
#define FOLD_128(v, by, next) \
    _mm_xor_si128(            \
        _mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11)), next)

/* A value with the same checksum as the 64 bytes, which follow zeros. */
FOLDS static inline uint32_t reduce(__m512i v)
{
    const __m128i by = _mm_loadu_si128((const void *)&by_16);
    __m128i w = _mm512_extracti32x4_epi32(v, 0);

    w = FOLD_128(w, by, _mm512_extracti32x4_epi32(v, 1));
    w = FOLD_128(w, by, _mm512_extracti32x4_epi32(v, 2));
    w = FOLD_128(w, by, _mm512_extracti32x4_epi32(v, 3));
    return STEP8(STEP8(0, (uint64_t)_mm_cvtsi128_si64(w)), (uint64_t)_mm_extract_epi64(w, 1));
}

/* A block of 16 bytes, multiplied by a power of x without carries, and added to the one which
 * lies so much further on, leaves the remainder as it is (Gopal et al.: Fast CRC Computation
 * for Generic Polynomials Using PCLMULQDQ Instruction, 2009). Sixteen at a time. Of `size`,
 * which is WORTH_FOLDING or more, all but the last FOLDED - 1 at most; `*at` moves on. */
FOLDS static uint32_t crc_folded(uint32_t crc, const unsigned char **at, size_t *size)
{
    const __m512i far = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)&by_256));
    const __m512i near = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)&by_64));
    __m512i v[4];

    for (int i = 0; i < 4; i++)
        v[i] = _mm512_loadu_si512(*at + 64 * i);
    v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    for (*at += FOLDED, *size -= FOLDED; *size >= FOLDED; *at += FOLDED, *size -= FOLDED)
        for (int i = 0; i < 4; i++)
            v[i] = FOLD_512(v[i], far, _mm512_loadu_si512(*at + 64 * i));
    for (int i = 0; i < 3; i++)
        v[i + 1] = FOLD_512(v[i], near, v[i + 1]);
    return ~reduce(v[3]);
}

FOLDS_HALF static inline __m256i take_half(const unsigned char *at, unsigned char *to)
{
    __m256i bytes = _mm256_loadu_si256((const void *)at);

    if (to)
        _mm256_storeu_si256((void *)to, bytes);
    return bytes;
}

/* The same, half as wide; also stores the bytes at `to`, if that is not NULL. */
FOLDS_HALF static inline __attribute__((always_inline)) uint32_t fold_half(uint32_t crc,
                                                                           const unsigned char **at,
                                                                           size_t *size,
                                                                           unsigned char *to)
{
    const __m256i far = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)&by_256));
    const __m256i near = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)&by_32));
    const __m128i last = _mm_loadu_si128((const void *)&by_16);
    const unsigned char *from = *at;
    __m256i v[8], next;
    __m128i w;

    for (int i = 0; i < 8; i++)
        v[i] = take_half(from + 32 * i, to ? to + 32 * i : NULL);
    v[0] = _mm256_xor_si256(v[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
    for (from += FOLDED, *size -= FOLDED; *size >= FOLDED; from += FOLDED, *size -= FOLDED) {
        to = to ? to + FOLDED : NULL;
        for (int i = 0; i < 8; i++) {
            next = take_half(from + 32 * i, to ? to + 32 * i : NULL);
            v[i] = FOLD_256(v[i], far, next);
        }
    }
    *at = from;
    for (int i = 0; i < 7; i++)
        v[i + 1] = FOLD_256(v[i], near, v[i + 1]);
    w = FOLD_128(_mm256_castsi256_si128(v[7]), last, _mm256_extracti128_si256(v[7], 1));
    return ~STEP8(STEP8(0, (uint64_t)_mm_cvtsi128_si64(w)), (uint64_t)_mm_extract_epi64(w, 1));
}

FOLDS_HALF static uint32_t crc_half(uint32_t crc, const unsigned char **at, size_t *size)
{
    return fold_half(crc, at, size, NULL);
}

FOLDS_HALF static uint32_t copy_half(uint32_t crc, const unsigned char **at, size_t *size,
                                     unsigned char *to)
{
    return fold_half(crc, at, size, to);
}
#endif

__attribute__((constructor)) static void make_tables(void)
{
    static const unsigned char zeros[LANE];

    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
        slice[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++)
        for (int k = 1; k < 8; k++)
            slice[k][b] = slice[k - 1][b] >> 8 ^ slice[0][slice[k - 1][b] & 0xFF];
    /* The checksum is linear: only single bits are advanced over the zeros. */
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 1; b < 256; b++)
            skip[k][b] = b & (b - 1) ? skip[k][b & (b - 1)] ^ skip[k][b & -b]
                                     : ~shmq_crc32c_portable(~(b << 8 * k), zeros, LANE);
    native = has_instruction();
#if defined(__x86_64__)
    make_powers();
    folds_half = has_folding() && __builtin_cpu_supports("avx2");
    folds = has_folding() && __builtin_cpu_supports("avx512f");
#endif
}

uint32_t shmq_crc32c_striped(uint32_t crc, const void *bytes, size_t size)
{
#ifdef NATIVE
    if (__builtin_expect(native, 1))
        return crc_native(crc, bytes, size);
#endif
    return shmq_crc32c_portable(crc, bytes, size);
}

uint32_t shmq_crc32c(uint32_t crc, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

#if defined(__x86_64__)
    if (__builtin_expect(size >= WORTH_FOLDING, 0) && folds_half)
        crc = folds ? crc_folded(crc, &at, &size) : crc_half(crc, &at, &size);
#endif
#ifdef NATIVE
    if (__builtin_expect(native, 1))
        return crc_native(crc, at, size);
#endif
    return shmq_crc32c_portable(crc, at, size);
}

uint32_t shmq_crc32c_copy(uint32_t crc, void *to, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    unsigned char *at = to;

#if defined(__x86_64__)
    if (size >= WORTH_FOLDING && folds_half) {
        size_t left = size;

        crc = copy_half(crc, &from, &left, at);
        at += size - left;
        size = left;
    }
#endif
    for (size_t piece; size; size -= piece, at += piece, from += piece) {
        piece = size < PIECE ? size : PIECE;
        memcpy(at, from, piece);
        crc = shmq_crc32c(crc, at, piece);
    }
    return crc;
}
