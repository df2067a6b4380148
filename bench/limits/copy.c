/* copy SENDER_CORE RECEIVER_CORE MESSAGES BYTES: bodies per second that one process copies
 * into shared memory and the other copies out of it, through four slots. */
#include "sides.h"

#define SLOTS 4u
#define PAGE 4096

struct marks {
    _Alignas(64) _Atomic uint64_t sent;
    _Alignas(64) _Atomic uint64_t taken;
    _Alignas(64) _Atomic int64_t begun;
    _Alignas(64) _Atomic bool ready;
};

static struct marks *marks;
static unsigned char *slots;
static uint64_t messages;
static size_t bytes;
static bool alone;

/* Each side maps every page before the clock starts. */
static void touch(void)
{
    for (size_t at = 0; at < SLOTS * bytes; at += PAGE)
        (void)*(volatile unsigned char *)(slots + at);
}

/* The four bodies: each page begins with the number of its body and of itself. */
static unsigned char *bodies(void)
{
    unsigned char *made = malloc(SLOTS * bytes);

    if (!made)
        fail("there is no memory");
    memset(made, 7, SLOTS * bytes);
    for (uint64_t page = 0; page < SLOTS * bytes / PAGE; page++)
        memcpy(made + page * PAGE, &page, sizeof(page));
    return made;
}

static void send_all(void)
{
    const unsigned char *made = bodies();

    touch();
    while (!atomic_load_explicit(&marks->ready, memory_order_acquire))
        relax(alone);
    atomic_store(&marks->begun, now());
    for (uint64_t sent = 0; sent < messages; sent++) {
        while (sent - atomic_load_explicit(&marks->taken, memory_order_acquire) >= SLOTS)
            relax(alone);
        memcpy(slots + sent % SLOTS * bytes, made + sent % SLOTS * bytes, bytes);
        atomic_store_explicit(&marks->sent, sent + 1, memory_order_release);
    }
}

static void receive_all(void)
{
    unsigned char *body = malloc(bytes);
    uint64_t wrong = 0, page, expected;

    if (!body)
        fail("there is no memory");
    memset(body, 0, bytes);
    touch();
    atomic_store_explicit(&marks->ready, true, memory_order_release);
    for (uint64_t taken = 0; taken < messages; taken++) {
        while (atomic_load_explicit(&marks->sent, memory_order_acquire) == taken)
            relax(alone);
        memcpy(body, slots + taken % SLOTS * bytes, bytes);
        atomic_store_explicit(&marks->taken, taken + 1, memory_order_release);
        expected = taken % SLOTS * (bytes / PAGE);
        for (size_t at = 0; at < bytes; at += PAGE) {
            memcpy(&page, body + at, sizeof(page));
            wrong += page != expected++;
        }
    }
    if (wrong)
        fail("a message was lost, reordered or damaged");
    printf("%.1f\n", (double)messages * 1e9 / (double)(now() - atomic_load(&marks->begun)));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        fail("usage: copy SENDER_CORE RECEIVER_CORE MESSAGES BYTES");
    messages = strtoull(argv[3], NULL, 10);
    bytes = strtoull(argv[4], NULL, 10);
    alone = atoi(argv[1]) == atoi(argv[2]);
    marks = shared(sizeof(*marks));
    slots = shared(SLOTS * bytes);
    two_sides(send_all, atoi(argv[1]), receive_all, atoi(argv[2]));
    return 0;
}
