/* ring SENDER_CORE RECEIVER_CORE MESSAGES BATCH: messages of 64 bytes per second through a
 * ring of 16,384 slots with one sender and one receiver, BATCH of them for each store of an
 * index. Each body is copied in and copied out. */
#include "sides.h"

#define SLOTS 16384u
#define SIZE 64

struct ring {
    _Alignas(64) _Atomic uint64_t sent;
    _Alignas(64) _Atomic uint64_t taken;
    _Alignas(64) _Atomic int64_t begun;
    _Alignas(64) _Atomic bool ready;
    _Alignas(64) unsigned char slots[SLOTS][SIZE];
};

static struct ring *ring;
static uint64_t messages, batch;
static bool alone;

/* Each side maps every page before the clock starts. */
static void touch(void)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        (void)*(volatile unsigned char *)ring->slots[slot];
}

static void send_all(void)
{
    unsigned char body[SIZE] = {0};
    uint64_t sent = 0, taken = 0;

    touch();
    while (!atomic_load_explicit(&ring->ready, memory_order_acquire))
        relax(alone);
    atomic_store(&ring->begun, now());
    while (sent < messages) {
        uint64_t end = sent + batch < messages ? sent + batch : messages;

        while (end - taken > SLOTS) {
            taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
            if (end - taken > SLOTS)
                relax(alone);
        }
        for (; sent < end; sent++) {
            memcpy(body, &sent, sizeof(sent));
            memcpy(body + SIZE - sizeof(sent), &sent, sizeof(sent));
            memcpy(ring->slots[sent % SLOTS], body, SIZE);
        }
        atomic_store_explicit(&ring->sent, sent, memory_order_release);
    }
}

static void receive_all(void)
{
    unsigned char bodies[64][SIZE];
    uint64_t taken = 0, sent = 0, first, last, wrong = 0;

    touch();
    atomic_store_explicit(&ring->ready, true, memory_order_release);
    while (taken < messages) {
        uint64_t end;

        while (sent == taken) {
            sent = atomic_load_explicit(&ring->sent, memory_order_acquire);
            if (sent == taken)
                relax(alone);
        }
        end = sent - taken < batch ? sent : taken + batch;
        for (; taken < end; taken++) {
            unsigned char *body = bodies[taken % 64];

            memcpy(body, ring->slots[taken % SLOTS], SIZE);
            memcpy(&first, body, sizeof(first));
            memcpy(&last, body + SIZE - sizeof(last), sizeof(last));
            wrong += first != taken || last != taken;
        }
        atomic_store_explicit(&ring->taken, taken, memory_order_release);
    }
    if (wrong)
        fail("a message was lost, reordered or damaged");
    printf("%.1f\n", (double)messages * 1e9 / (double)(now() - atomic_load(&ring->begun)));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        fail("usage: ring SENDER_CORE RECEIVER_CORE MESSAGES BATCH");
    messages = strtoull(argv[3], NULL, 10);
    batch = strtoull(argv[4], NULL, 10);
    alone = atoi(argv[1]) == atoi(argv[2]);
    ring = shared(sizeof(*ring));
    two_sides(send_all, atoi(argv[1]), receive_all, atoi(argv[2]));
    return 0;
}
