// floor makes the system calls of two sidecars and nothing else. It shows what two event loops
// cost that share one connection, the link, and do no work.
//
//	floor consumer PORT LINK-PORT    accepts connections of clients
//	floor provider LINK-PORT PORT    opens one to the application for each of them
//
// A wake-up takes one epoll_wait, and one recv for each socket that has input. Input of clients
// and of the application leaves at the end of the turn in one send to the link. Input of the link
// takes one send for each connection that it is for. Nothing is parsed or copied: what was read
// from a connection crosses the link as a frame, whose header has the connection's number.
//
// Sends block, which is simple, and harmless with small messages: the buffers of the kernel
// hold all that a closed loop has in flight.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	EVENTS = 256,      // of one turn
	STREAMS = 1 << 16, // at a time
	CHUNK = 64 << 10,  // the most that one recv reads from a connection
};

// frame is the header of each frame. Both processes have the same byte order.
struct frame {
	uint32_t stream; // the descriptor of the client's connection
	uint32_t length; // 0 ends the stream
};

// fd_of has the connection of each stream, or one of these.
enum {
	NONE = -1,
	ENDED = -2, // the frame that ends it was sent, and the one of the other process is awaited
};

static int fd_of[STREAMS];
static uint32_t stream_of[STREAMS]; // by the descriptor of a connection

static int consumer; // or else provider
static int epoll, listener, wire = -1;
static struct sockaddr_in target; // the link of the other process, or the application

static char in[1 << 20];                                                  // of the link
static char out[EVENTS * (sizeof(struct frame) + CHUNK) + 2 * sizeof in]; // to the link
static size_t have, used;

// Descriptors to close at the end of the turn: a new connection must not get the number of one
// whose event has not been handled yet.
static int gone[STREAMS];
static int gone_count;

static void die(const char *what) {
	perror(what);
	exit(1);
}

// watch adds a connection to the loop.
static int watch(int fd) {
	if (fd < 0 || fd >= STREAMS)
		die("connection");
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
	return fd;
}

// dial connects to the target.
static int dial(void) {
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&target, sizeof target) < 0)
		die("connect");
	return watch(fd);
}

static void open_stream(uint32_t stream, int fd) {
	fd_of[stream] = fd;
	stream_of[fd] = stream;
}

static void close_later(int fd) {
	gone[gone_count++] = fd;
}

// send_all sends to a peer. If that has gone, its end is read later.
static void send_all(int fd, const char *data, size_t length) {
	while (length > 0) {
		ssize_t n = send(fd, data, length, MSG_NOSIGNAL);
		if (n < 0)
			return;
		data += n;
		length -= n;
	}
}

// put adds a frame for the link, whose payload is in its place already.
static void put(uint32_t stream, uint32_t length) {
	struct frame f = {stream, length};
	memcpy(out + used, &f, sizeof f);
	used += sizeof f + length;
}

// on_connection reads from a client or from the application.
static void on_connection(int fd) {
	uint32_t stream = stream_of[fd];
	if (fd_of[stream] != fd)
		return; // closed in this turn
	ssize_t n = recv(fd, out + used + sizeof(struct frame), CHUNK, MSG_DONTWAIT);
	if (n > 0) {
		put(stream, n);
	} else if (n == 0 || errno != EAGAIN) {
		put(stream, 0);
		fd_of[stream] = ENDED;
		if (consumer) // the descriptor stays: it is the number of the stream
			epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
		else
			close_later(fd);
	}
}

static void on_frame(uint32_t stream, const char *data, uint32_t length) {
	if (length == 0) {
		if (fd_of[stream] != ENDED)
			put(stream, 0);
		if (consumer)
			close_later(stream);
		else if (fd_of[stream] >= 0)
			close_later(fd_of[stream]);
		fd_of[stream] = NONE;
		return;
	}
	if (fd_of[stream] == NONE && !consumer)
		open_stream(stream, dial());
	if (fd_of[stream] >= 0)
		send_all(fd_of[stream], data, length);
}

// drop_link closes the link and its streams. A consumer has no other link.
static void drop_link(void) {
	if (consumer)
		die("link");
	close_later(wire);
	wire = -1;
	have = 0;
	for (int s = 0; s < STREAMS; s++) {
		if (fd_of[s] >= 0)
			close_later(fd_of[s]);
		fd_of[s] = NONE;
	}
}

// on_link reads from the link. The rest of a frame waits for the next turn.
static void on_link(void) {
	ssize_t n = recv(wire, in + have, sizeof in - have, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		drop_link();
		return;
	}
	have += n;
	size_t at = 0;
	struct frame f;
	while (have - at >= sizeof f) {
		memcpy(&f, in + at, sizeof f);
		if (have - at < sizeof f + f.length)
			break;
		on_frame(f.stream, in + at + sizeof f, f.length);
		at += sizeof f + f.length;
	}
	have -= at;
	memmove(in, in + at, have);
}

// on_listener accepts a client, or a link in place of the last one.
static void on_listener(void) {
	int fd = watch(accept(listener, NULL, NULL));
	if (consumer) {
		open_stream(fd, fd);
		return;
	}
	if (wire >= 0)
		drop_link();
	wire = fd;
}

static struct sockaddr_in loopback(const char *port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

int main(int argc, char **argv) {
	if (argc != 4 || (strcmp(argv[1], "consumer") && strcmp(argv[1], "provider"))) {
		fprintf(stderr, "usage: floor consumer|provider PORT TARGET-PORT\n");
		return 2;
	}
	consumer = !strcmp(argv[1], "consumer");
	target = loopback(argv[3]);
	for (int s = 0; s < STREAMS; s++)
		fd_of[s] = NONE;
	epoll = epoll_create1(0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = loopback(argv[2]);
	int on = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 4096) < 0)
		die("listen");
	watch(listener);
	if (consumer)
		wire = dial();
	struct epoll_event events[EVENTS];
	for (;;) {
		int accepting = 0, n = epoll_wait(epoll, events, EVENTS, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener)
				accepting = 1;
			else if (fd == wire)
				on_link();
			else
				on_connection(fd);
		}
		if (used > 0 && wire >= 0)
			send_all(wire, out, used);
		used = 0;
		while (gone_count > 0)
			close(gone[--gone_count]);
		if (accepting)
			on_listener();
	}
}
