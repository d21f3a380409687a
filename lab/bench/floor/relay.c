// relay copies the bytes of TCP connections both ways and parses nothing: what a proxy costs that
// does no work. Each connection to it opens one to the target.
//
//	relay PORT TARGET-PORT
//
// A wake-up takes one epoll_wait, and one read and one write for each connection that has input.
// Writes that the kernel doesn't take are tried until it does.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	EVENTS = 256,          // of one turn
	DESCRIPTORS = 1 << 16, // at a time
};

static int other[DESCRIPTORS]; // the other end of each connection
static int ended[DESCRIPTORS]; // it will be closed at the end of the turn
static int epoll, listener;
static struct sockaddr_in target;

static struct sockaddr_in loopback(const char *port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static void watch(int fd, int to) {
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	other[fd] = to;
	ended[fd] = 0;
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

// on_listener accepts all clients that wait, and connects each to the target.
static void on_listener(void) {
	int client;
	while ((client = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		int server = socket(AF_INET, SOCK_STREAM, 0);
		if (server < 0 || server >= DESCRIPTORS || client >= DESCRIPTORS || connect(server, (struct sockaddr *)&target, sizeof target) < 0) {
			close(client);
			close(server);
			continue;
		}
		fcntl(server, F_SETFL, O_NONBLOCK);
		watch(client, server);
		watch(server, client);
	}
}

// copy sends on what there is. It returns 0 if the connection has ended.
static int copy(int from, int to) {
	static char data[1 << 16];
	ssize_t n = read(from, data, sizeof data);
	if (n < 0 && errno == EAGAIN)
		return 1;
	for (ssize_t at = 0, k; at < n; at += k) {
		k = write(to, data + at, n - at);
		if (k < 0 && errno != EAGAIN)
			return 0;
		if (k < 0)
			k = 0;
	}
	return n > 0;
}

int main(int argc, char **argv) {
	if (argc != 3) {
		fprintf(stderr, "usage: relay PORT TARGET-PORT\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	struct sockaddr_in a = loopback(argv[1]);
	target = loopback(argv[2]);
	int on = 1;
	epoll = epoll_create1(0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 4096) < 0) {
		perror("listen");
		return 1;
	}
	watch(listener, listener);
	struct epoll_event events[EVENTS];
	// Descriptors are closed at the end of the turn: a new connection must not get the number of
	// one whose event has not been handled yet.
	int gone[2 * EVENTS];
	for (;;) {
		int count = 0, n = epoll_wait(epoll, events, EVENTS, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener) {
				on_listener();
			} else if (!ended[fd] && !copy(fd, other[fd])) {
				ended[fd] = ended[other[fd]] = 1;
				gone[count++] = fd;
				gone[count++] = other[fd];
			}
		}
		while (count > 0)
			close(gone[--count]);
	}
}
