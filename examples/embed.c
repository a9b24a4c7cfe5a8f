/* Embeds millrace's connection tracker in C: counts the packets of each connection.
 * Build: see CMakeLists.txt beside this file, or
 *   cc embed.c $(pkg-config --cflags --libs --static millrace)
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <string.h>

static millrace_key_v6 key_of(uint8_t client, uint16_t port) {
  millrace_key_v6 key;
  memset(&key, 0, sizeof key);
  key.source[0] = 0x20, key.source[1] = 0x01, key.source[2] = 0x0d, key.source[3] = 0xb8;
  key.source[15] = client;
  key.destination[0] = 0xfd, key.destination[15] = 1;
  key.source_port = port;
  key.destination_port = 53;
  key.protocol = 17; /* UDP */
  return key;
}

static void ended(uint32_t id, void* context) {
  (void)id;
  ++*(unsigned*)context;
}

struct listing {
  const millrace_tracker* tracker;
  unsigned* count;
};

static void list(uint32_t id, void* context) {
  const struct listing* listing = context;
  const millrace_key_v6* key = millrace_key(listing->tracker, id);
  const uint64_t* packets = millrace_state(listing->tracker, id);
  printf("  client %u, port %u: %u packets, the last at %u ms\n", key->source[15], key->source_port,
         (unsigned)*packets, (unsigned)millrace_last_seen(listing->tracker, id));
  ++*listing->count;
}

int main(void) {
  char error[200];
  millrace_options options = millrace_defaults();
  options.family = MILLRACE_IPV6;
  options.capacity = 10000;
  options.state_bytes = sizeof(uint64_t);
  options.timeout_ms = 5000;
  millrace_tracker* tracker = millrace_create(&options, error, sizeof error);
  if (tracker == NULL) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }

  /* A burst of three packets of two connections, at time 0. */
  const millrace_key_v6 burst[3] = {key_of(1, 4000), key_of(2, 4000), key_of(1, 4000)};
  uint32_t ids[3];
  uint64_t fresh = millrace_track(tracker, burst, 3, 0, ids);
  for (int i = 0; i < 3; ++i) ++*(uint64_t*)millrace_state(tracker, ids[i]);
  uint64_t packets = *(uint64_t*)millrace_state(tracker, ids[0]);
  size_t live = millrace_size(tracker);
  printf("%zu connections; the first has %u packets\n", live, (unsigned)packets);

  /* Lists the live connections, a piece at a time: bursts may be tracked between the pieces. */
  unsigned listed = 0;
  struct listing listing = {tracker, &listed};
  for (uint32_t at = 0; at != MILLRACE_NONE;) at = millrace_walk(tracker, at, 1024, list, &listing);

  /* Six seconds without packets, over the timeout of five, end all connections. */
  unsigned gone = 0;
  while (!millrace_sweep(tracker, 6000, 64, ended, &gone)) {
  }
  printf("%u ended, %zu left\n", gone, millrace_size(tracker));
  int right = fresh == 3 && packets == 2 && live == 2 && listed == 2 && gone == 2 &&
              millrace_size(tracker) == 0;
  millrace_destroy(tracker);
  return right ? 0 : 1;
}
