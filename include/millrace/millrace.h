/* millrace for C: a connection tracker to embed.
 *
 * The same as millrace/tracker.h, which says more. One thread at a time uses a tracker; calls
 * handle bursts of up to MILLRACE_BURST_MAX keys. `keys` points to an array of millrace_key_v4 or
 * millrace_key_v6, as the tracker's family is. Unused key bytes must be zero.
 *
 * Rules that callers must keep: `tracker` and `options` are not NULL, nor are `keys` and `ids` of a
 * burst that is not empty; a burst has MILLRACE_BURST_MAX keys at most; an id that is given to a
 * function is that of a live connection (of a live reply entry, where one is asked for), so a
 * connection is closed once; `closed` does not change the tracker. A debug build of the library
 * checks them: a broken rule prints one line that names call and rule, "millrace: close: ...", and
 * aborts. Other builds check nothing, and a broken rule may corrupt memory.
 *
 * Ticks count milliseconds of a clock that is not set, such as CLOCK_MONOTONIC, and wrap after 49.7
 * days: pass the low 32 bits. What happens where they go back stands in millrace/tracker.h: nothing
 * breaks, connections end later or earlier by as much.
 */
#ifndef MILLRACE_MILLRACE_H
#define MILLRACE_MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLRACE_NONE UINT32_MAX /* no connection */
#define MILLRACE_BURST_MAX 64

#ifdef __cplusplus
#define MILLRACE_ALIGNED alignas(8)
#else
#define MILLRACE_ALIGNED _Alignas(8)
#endif

typedef struct millrace_tracker millrace_tracker;

typedef enum { MILLRACE_IPV4 = 4, MILLRACE_IPV6 = 6 } millrace_family;

/* Addresses as on the wire, ports in host byte order. */
typedef struct {
  MILLRACE_ALIGNED uint8_t source[4];
  uint8_t destination[4];
  uint16_t source_port, destination_port;
  uint8_t protocol;
  uint8_t zone[3];
} millrace_key_v4;

typedef struct {
  MILLRACE_ALIGNED uint8_t source[16];
  uint8_t destination[16];
  uint16_t source_port, destination_port;
  uint8_t protocol;
  uint8_t zone[3];
} millrace_key_v6;

typedef struct {
  millrace_family family;
  size_t capacity;    /* connections promised */
  size_t state_bytes; /* your state a connection, at most 200, 8-byte aligned */
  bool replies;       /* connections may have a reply entry */
  size_t reply_state_bytes;
  uint32_t timeout_ms;  /* idle time after which millrace_sweep ends a connection */
  uint32_t interval_ms; /* 1 to 1000; how finely timeouts are told apart */
  const uint64_t* seed; /* NULL: draw a secret */
} millrace_options;

/* IPv4, 1,000,000 connections, 8 bytes of state, no replies, 120 s, 10 ms, drawn secret. */
millrace_options millrace_defaults(void);

/* NULL on failure, with one line in `error` (may be NULL). */
millrace_tracker* millrace_create(const millrace_options* options, char* error, size_t error_size);
void millrace_destroy(millrace_tracker* tracker);

/* Finds each key's connection or opens one; ids[i] is MILLRACE_NONE where the table is full. Bit i
 * of the result: keys[i] opened it, its state is zeroed. */
uint64_t millrace_track(millrace_tracker* tracker, const void* keys, size_t count, uint32_t now_ms,
                        uint32_t* ids);
/* Finds without opening. */
void millrace_find(millrace_tracker* tracker, const void* keys, size_t count, uint32_t now_ms,
                   uint32_t* ids);
/* Gives a connection its reply entry; false where that key belongs to another, or there is no
 * place. */
bool millrace_link(millrace_tracker* tracker, uint32_t id, const void* reply_key, uint32_t now_ms);
/* Finds reply entries. */
void millrace_find_replies(millrace_tracker* tracker, const void* keys, size_t count,
                           uint32_t now_ms, uint32_t* ids);
uint32_t millrace_originator(const millrace_tracker* tracker, uint32_t reply);
/* The connection's reply entry, or MILLRACE_NONE. */
uint32_t millrace_reply(const millrace_tracker* tracker, uint32_t id);
/* A millrace_key_v4 or millrace_key_v6, as the tracker's family is; the tracker's, until the
 * connection ends. */
const void* millrace_key(const millrace_tracker* tracker, uint32_t id);
/* When a packet last met the connection: of both directions' ticks the later one. */
uint32_t millrace_last_seen(const millrace_tracker* tracker, uint32_t id);
void* millrace_state(const millrace_tracker* tracker, uint32_t id);
void* millrace_reply_state(const millrace_tracker* tracker, uint32_t reply);

void millrace_close(millrace_tracker* tracker, uint32_t id);
/* Ends idle connections, at most `budget` looked at; true when nothing is left to do. `closed` may
 * be NULL. */
bool millrace_sweep(millrace_tracker* tracker, uint32_t now_ms, unsigned budget,
                    void (*closed)(uint32_t id, void* context), void* context);

/* Visits live connections in the order of their ids, a bounded piece at a time: looks at `budget`
 * ids from `from` on, calls `visit` for each that is live, and returns where the next piece begins,
 * MILLRACE_NONE when no id is left. A walk begins at 0. Between pieces, and in `visit`, every
 * function may be called, on the tracker's thread; a connection that lives through the whole walk
 * is visited exactly once, one that begins or ends meanwhile once or not at all. */
uint32_t millrace_walk(const millrace_tracker* tracker, uint32_t from, size_t budget,
                       void (*visit)(uint32_t id, void* context), void* context);
size_t millrace_size(const millrace_tracker* tracker);
size_t millrace_memory_bytes(const millrace_tracker* tracker);

#ifdef __cplusplus
}
#endif

#endif
