/* loopback SENDER_CORE RECEIVER_CORE MESSAGES BYTES: bodies per second that one process writes
 * to a TCP socket of the loopback and the other reads from it. A core below 0 means any. */
#include "sides.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define BODIES 8u
#define PAGE 4096

static int listener;
static struct sockaddr_in address;
static uint64_t messages;
static size_t bytes;

static void listen_somewhere(void)
{
    socklen_t length = sizeof(address);

    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length)
        || listen(listener, 1) || getsockname(listener, (struct sockaddr *)&address, &length))
        fail("there is no port to listen on");
}

/* Each page begins with its number among all pages of the bodies. */
static unsigned char *bodies(void)
{
    unsigned char *made = malloc(BODIES * bytes);

    if (!made)
        fail("there is no memory");
    memset(made, 7, BODIES * bytes);
    for (uint64_t page = 0; page < BODIES * bytes / PAGE; page++)
        memcpy(made + page * PAGE, &page, sizeof(page));
    return made;
}

static void send_all(void)
{
    const unsigned char *made = bodies();
    int connection = socket(AF_INET, SOCK_STREAM, 0);

    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof(address)))
        fail("the receiver cannot be reached");
    for (uint64_t sent = 0; sent < messages; sent++)
        for (size_t at = 0; at < bytes;) {
            ssize_t count = send(connection, made + sent % BODIES * bytes + at, bytes - at, 0);

            if (count <= 0)
                fail("the receiver hung up");
            at += (size_t)count;
        }
    close(connection);
}

static void receive_body(int connection, unsigned char *body)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t count = recv(connection, body + at, bytes - at, 0);

        if (count <= 0)
            fail("the sender hung up");
        at += (size_t)count;
    }
}

static void receive_all(void)
{
    unsigned char *body = malloc(bytes);
    uint64_t wrong = 0, page, expected;
    int connection = accept(listener, NULL, NULL);
    int64_t begun = now();

    if (!body || connection < 0)
        fail("nobody sends");
    for (uint64_t taken = 0; taken < messages; taken++) {
        receive_body(connection, body);
        expected = taken % BODIES * (bytes / PAGE);
        for (size_t at = 0; at < bytes; at += PAGE) {
            memcpy(&page, body + at, sizeof(page));
            wrong += page != expected++;
        }
    }
    if (wrong)
        fail("a message was lost, reordered or damaged");
    printf("%.1f\n", (double)messages * 1e9 / (double)(now() - begun));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        fail("usage: loopback SENDER_CORE RECEIVER_CORE MESSAGES BYTES");
    messages = strtoull(argv[3], NULL, 10);
    bytes = strtoull(argv[4], NULL, 10);
    listen_somewhere();
    two_sides(send_all, atoi(argv[1]), receive_all, atoi(argv[2]));
    return 0;
}
