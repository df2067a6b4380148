/* echo: sends back what it receives, on a port of the loopback that it prints, to one connection
 * after the other, until it is ended. It needs one read and one write per message: no server
 * that answers over TCP needs less. */
#include "sides.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static unsigned char bytes[1 << 20];

static bool send_back(int connection, size_t length)
{
    for (size_t at = 0; at < length;) {
        ssize_t sent = send(connection, bytes + at, length - at, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

static void serve(int connection)
{
    int yes = 1;
    ssize_t got;

    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    while ((got = recv(connection, bytes, sizeof(bytes), 0)) > 0)
        if (!send_back(connection, (size_t)got))
            break;
    close(connection);
}

/* The load generator uses a second connection besides the one that it measures. */
static void serve_apart(int listener, int connection)
{
    pid_t child = fork();

    if (child < 0)
        fail("no process can be forked");
    if (child == 0) {
        close(listener);
        serve(connection);
        _exit(0);
    }
    close(connection);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length)
        || listen(listener, 16) || getsockname(listener, (struct sockaddr *)&address, &length))
        fail("there is no port to listen on");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int connection = accept(listener, NULL, NULL);

        if (connection >= 0)
            serve_apart(listener, connection);
    }
}
