/* traffic: what a roll is measured with. One static program, so that it runs in any network namespace of the guest.
 *
 *   traffic echo ADDRESS INTERVAL_US   sends ICMP echoes, each with a number of its own, until SIGTERM
 *   traffic stream ADDRESS PORT        holds one TCP connection and sends a numbered message ten times a second, until SIGTERM
 *   traffic answer PORT                sends every byte of every connection back
 *   traffic arp ADDRESS COUNT          asks who has it, COUNT times on eth0, and counts all that answer
 *
 * All but `answer` print one line of JSON when they end. An echo counts as lost if it was sent, or the kernel refused to send it, and no answer
 * came until LATE_S seconds after the last one: a slow machine delays answers and loses none. What a stalled sender did not send is not made
 * up for in a burst, and not counted: "skipped" says how much it was.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/if_ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LATE_S 4
#define MOST 1000000 /* numbers: close to three hours at 100 a second */
#define SHOWN 40     /* gaps named one by one */
#define STALLED_S 0.2

static volatile sig_atomic_t ended;
static void end(int signal) { (void)signal; ended = 1; }

static double clock_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void wait_for(int fd, short events, double seconds) {
  struct pollfd poll_fd = {.fd = fd, .events = events};
  struct timespec t = {0, 0};
  if (seconds > 0) {
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
  }
  ppoll(&poll_fd, 1, &t, NULL);
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static uint16_t checksum(const void *data, size_t size) {
  const uint16_t *word = data;
  uint32_t sum = 0;
  for (; size > 1; size -= 2) sum += *word++;
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)~sum;
}

struct echo {
  struct icmphdr header;
  uint32_t number;
  uint32_t run; /* tells this run's answers from those of an earlier one with the same identifier */
  char filler[40];
};

static double sent_at[MOST];
static char answered[MOST];

static uint32_t read_answers(int fd, uint16_t id, uint32_t run, uint32_t sent, long *twice) {
  static uint32_t different;
  char packet[2048];
  ssize_t size;
  while ((size = recv(fd, packet, sizeof packet, MSG_DONTWAIT)) > 0) {
    size_t ip = (size_t)((struct iphdr *)packet)->ihl * 4;
    struct echo answer;
    if ((size_t)size < ip + sizeof answer) continue;
    memcpy(&answer, packet + ip, sizeof answer);
    if (answer.header.type != ICMP_ECHOREPLY || answer.header.un.echo.id != id || answer.run != run || answer.number >= sent) continue;
    if (answered[answer.number]) ++*twice;
    else different++;
    answered[answer.number] = 1;
  }
  return different;
}

static int echo(const char *address, double interval) {
  struct sockaddr_in to = {.sin_family = AF_INET};
  if (!inet_aton(address, &to.sin_addr) || interval <= 0) return 2;
  int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), size = 1 << 22;
  if (fd < 0) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
  struct echo packet;
  memset(&packet, 0, sizeof packet);
  packet.header.type = ICMP_ECHO;
  packet.header.un.echo.id = (uint16_t)getpid();
  packet.run = (uint32_t)time(NULL);
  uint32_t sent = 0;
  long refused = 0, skipped = 0, twice = 0;
  double next = clock_of(CLOCK_MONOTONIC), stop_reading = 0;
  for (;;) {
    double now = clock_of(CLOCK_MONOTONIC);
    if (ended && stop_reading == 0) stop_reading = now + LATE_S;
    if (ended && now >= stop_reading) break;
    if (!ended && sent < MOST && now >= next) {
      if (now - next > STALLED_S) {
        skipped += (long)((now - next) / interval);
        next = now;
      }
      packet.number = sent;
      packet.header.un.echo.sequence = htons((uint16_t)sent);
      packet.header.checksum = 0;
      packet.header.checksum = checksum(&packet, sizeof packet);
      sent_at[sent++] = clock_of(CLOCK_REALTIME);
      if (sendto(fd, &packet, sizeof packet, 0, (struct sockaddr *)&to, sizeof to) < 0) refused++;
      next += interval;
    }
    if (read_answers(fd, packet.header.un.echo.id, packet.run, sent, &twice) == sent && ended) break;
    wait_for(fd, POLLIN, (ended ? stop_reading : next) - clock_of(CLOCK_MONOTONIC));
  }
  /* A gap lasts from its first lost echo to the first one that is answered again. */
  uint32_t lost = 0;
  double longest = 0;
  int gaps = 0;
  printf("{\"gaps\": [");
  for (uint32_t i = 0; i < sent;) {
    uint32_t until = i;
    while (until < sent && !answered[until]) until++;
    if (until > i) {
      double lasted = (until < sent ? sent_at[until] : sent_at[sent - 1] + interval) - sent_at[i];
      if (lasted > longest) longest = lasted;
      if (gaps < SHOWN) printf("%s{\"at\": %.3f, \"lost\": %u, \"s\": %.3f}", gaps ? ", " : "", sent_at[i], until - i, lasted);
      gaps++;
      lost += until - i;
    }
    i = until > i ? until : i + 1;
  }
  printf("], \"sent\": %u, \"lost\": %u, \"longest_gap_s\": %.3f, \"refused\": %ld, \"skipped\": %ld, \"twice\": %ld}\n", sent, lost, longest, refused, skipped, twice);
  return 0;
}

static int stream(const char *address, int port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (!inet_aton(address, &to.sin_addr)) return 2;
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (fd < 0) fail("socket");
  if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  uint64_t sent = 0, back = 0, bytes = 0, wrong = 0;
  char buffer[8];
  size_t held = 0;
  int broken = 0;
  double next = clock_of(CLOCK_MONOTONIC), stop_reading = 0;
  while (!broken) {
    double now = clock_of(CLOCK_MONOTONIC);
    if (ended && stop_reading == 0) stop_reading = now + 10 * LATE_S; /* a retransmission after a long gap comes late */
    if (ended && (back == sent || now >= stop_reading)) break;
    if (!ended && now >= next) {
      ssize_t size = send(fd, &sent, sizeof sent, MSG_NOSIGNAL);
      if (size == (ssize_t)sizeof sent) sent++;
      else if (size > 0) broken = 1; /* half a message: the rest would have to be kept */
      else if (errno != EAGAIN) broken = errno;
      next = now + .1;
    }
    ssize_t size;
    while ((size = recv(fd, buffer + held, sizeof buffer - held, 0)) > 0) {
      held += (size_t)size;
      bytes += (uint64_t)size;
      if (held == sizeof buffer) {
        uint64_t number;
        memcpy(&number, buffer, sizeof number);
        if (number != back) wrong++;
        back++;
        held = 0;
      }
    }
    if (size == 0) broken = ECONNRESET;
    else if (size < 0 && errno != EAGAIN) broken = errno;
    wait_for(fd, POLLIN, (ended ? stop_reading : next) - clock_of(CLOCK_MONOTONIC));
  }
  printf("{\"sent\": %llu, \"answered\": %llu, \"wrong\": %llu, \"broken\": \"%s\"}\n", (unsigned long long)sent, (unsigned long long)back,
         (unsigned long long)wrong, broken ? strerror(broken) : "");
  return 0;
}

static int answer(int port) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (fd < 0) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&here, sizeof here) < 0 || listen(fd, 16) < 0) fail("listen");
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    int peer = accept(fd, NULL, NULL);
    if (peer < 0 || fork()) {
      if (peer >= 0) close(peer);
      continue;
    }
    char buffer[4096];
    ssize_t size;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while ((size = recv(peer, buffer, sizeof buffer, 0)) > 0)
      if (send(peer, buffer, (size_t)size, MSG_NOSIGNAL) != size) break;
    _exit(0);
  }
}

/* Two that both believe to be the gateway both answer: more answers than questions. */
static int arp(const char *address, int count) {
  struct in_addr wanted;
  if (!inet_aton(address, &wanted) || count <= 0) return 2;
  int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ARP)), asked = 0, answers = 0;
  struct ifreq device = {.ifr_name = "eth0"};
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ARP), .sll_halen = ETH_ALEN, .sll_addr = {255, 255, 255, 255, 255, 255}};
  struct ether_arp question = {.ea_hdr = {htons(ARPHRD_ETHER), htons(ETH_P_IP), ETH_ALEN, 4, htons(ARPOP_REQUEST)}};
  int names = socket(AF_INET, SOCK_DGRAM, 0);
  if (fd < 0 || names < 0) fail("socket");
  if (ioctl(fd, SIOCGIFINDEX, &device) < 0) fail("eth0");
  to.sll_ifindex = device.ifr_ifindex;
  if (ioctl(fd, SIOCGIFHWADDR, &device) < 0) fail("hardware address of eth0");
  memcpy(question.arp_sha, device.ifr_hwaddr.sa_data, ETH_ALEN);
  if (ioctl(names, SIOCGIFADDR, &device) < 0) fail("address of eth0");
  memcpy(question.arp_spa, &((struct sockaddr_in *)&device.ifr_addr)->sin_addr, 4);
  memcpy(question.arp_tpa, &wanted, 4);
  for (double next = clock_of(CLOCK_MONOTONIC), until = next; !ended;) {
    double now = clock_of(CLOCK_MONOTONIC);
    if (asked < count && now >= next) {
      if (sendto(fd, &question, sizeof question, 0, (struct sockaddr *)&to, sizeof to) < 0) fail("sendto");
      asked++;
      next = now + .2;
      until = now + 2;
    }
    if (asked == count && now >= until) break;
    struct ether_arp heard;
    while (recv(fd, &heard, sizeof heard, MSG_DONTWAIT) >= (ssize_t)sizeof heard)
      if (ntohs(heard.ea_hdr.ar_op) == ARPOP_REPLY && !memcmp(heard.arp_spa, &wanted, 4)) answers++;
    wait_for(fd, POLLIN, (asked < count ? next : until) - clock_of(CLOCK_MONOTONIC));
  }
  printf("{\"asked\": %d, \"answers\": %d}\n", asked, answers);
  return 0;
}

int main(int count, char **argument) {
  struct sched_param first = {.sched_priority = 10};
  sched_setscheduler(0, SCHED_RR, &first); /* where it may: what it measures keeps the machine busy */
  const char *mode = count > 2 ? argument[1] : "";
  if (count == 3 && !strcmp(mode, "answer")) return answer(atoi(argument[2]));
  signal(SIGTERM, end);
  signal(SIGINT, end);
  if (count == 4 && !strcmp(mode, "echo")) return echo(argument[2], atof(argument[3]) / 1e6);
  if (count == 4 && !strcmp(mode, "stream")) return stream(argument[2], atoi(argument[3]));
  if (count == 4 && !strcmp(mode, "arp")) return arp(argument[2], atoi(argument[3]));
  fprintf(stderr, "usage: traffic echo ADDRESS INTERVAL_US | stream ADDRESS PORT | answer PORT | arp ADDRESS COUNT\n");
  return 2;
}
