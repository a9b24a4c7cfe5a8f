/* millrace for C: a connection tracker to embed.
 *
 * The functions are those of millrace/tracker.h, which says more about each. Only one thread at a
 * time may use a tracker. A call handles a burst of up to MILLRACE_BURST_MAX keys. `keys` points to
 * an array of millrace_key_v4 or millrace_key_v6, according to the tracker's family. Unused key
 * bytes must be zero.
 *
 * Rules that callers must keep:
 *
 *  - `tracker`, `options`, `reply_key` and `visit` are not NULL, nor are `keys` and `ids` of a
 *    burst that is not empty. Only millrace_destroy takes a NULL tracker.
 *  - A burst has MILLRACE_BURST_MAX keys at most.
 *  - An id that is passed to a function is that of a live connection, or of a live reply entry if
 *    the function takes one. A connection that has ended must not be closed again.
 *  - The callback `closed` does not change the tracker.
 *
 * A debug build of the library checks these rules: for a broken rule it prints one line that names
 * the call and the rule, "millrace: close: ...", and aborts. Other builds check nothing, and a
 * broken rule may corrupt memory.
 *
 * Ticks count milliseconds of a clock that is never set, such as CLOCK_MONOTONIC, and wrap after
 * 49.7 days: pass the low 32 bits. If ticks go back all the same, by up to 24.8 days, nothing
 * breaks, but connections end later or earlier, by as much as the ticks went back
 * (millrace/tracker.h says when).
 */
#ifndef MILLRACE_MILLRACE_H
#define MILLRACE_MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLRACE_NONE UINT32_MAX /* no connection, no reply entry, or the end of a walk */
#define MILLRACE_BURST_MAX 64

#ifdef __cplusplus
#define MILLRACE_ALIGNED alignas(8)
#else
#define MILLRACE_ALIGNED _Alignas(8)
#endif

typedef struct millrace_tracker millrace_tracker;

typedef enum { MILLRACE_IPV4 = 4, MILLRACE_IPV6 = 6 } millrace_family;

/* A key. Addresses are in network byte order, ports in host byte order. */
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
  size_t capacity;          /* connections that the tracker has room for, 1 or more */
  size_t state_bytes;       /* the caller's state for each connection: 0 to 200, 8-byte aligned */
  bool replies;             /* true: connections may have a reply entry */
  size_t reply_state_bytes; /* the caller's state in each reply entry: 0 to 200 */
  uint32_t timeout_ms;      /* idle time until millrace_sweep ends a connection, 1 to 2^31 - 1 */
  uint32_t interval_ms;     /* resolution of timeouts: 1 to 1000 */
  const uint64_t* seed;     /* fixes the hash's secret; NULL: a random secret */
} millrace_options;

/* Returns the defaults: IPv4, 1,000,000 connections, 8 bytes of state, no reply entries, a timeout
 * of 120 s, an interval of 10 ms, a random secret. */
millrace_options millrace_defaults(void);

/* Makes a tracker. Returns NULL on failure, with one line in `error`, which may be NULL. */
millrace_tracker* millrace_create(const millrace_options* options, char* error, size_t error_size);
/* Destroys a tracker; NULL does nothing. */
void millrace_destroy(millrace_tracker* tracker);

/* Finds the connection of each key, or opens one: ids[i] is the connection's id, or MILLRACE_NONE
 * if the table is full. Bit i of the result is set if keys[i] opened its connection; the
 * connection's state is then zeroed. */
uint64_t millrace_track(millrace_tracker* tracker, const void* keys, size_t count, uint32_t now_ms,
                        uint32_t* ids);
/* Finds the connection of each key; ids[i] is MILLRACE_NONE if there is none. */
void millrace_find(millrace_tracker* tracker, const void* keys, size_t count, uint32_t now_ms,
                   uint32_t* ids);
/* Gives a connection a reply entry. Returns false, and changes nothing, if `reply_key` has a reply
 * entry already, the table is full, the connection has a reply entry, or the tracker was made
 * without reply entries. */
bool millrace_link(millrace_tracker* tracker, uint32_t id, const void* reply_key, uint32_t now_ms);
/* Finds the reply entry of each key; ids[i] is MILLRACE_NONE if there is none. */
void millrace_find_replies(millrace_tracker* tracker, const void* keys, size_t count,
                           uint32_t now_ms, uint32_t* ids);
/* Returns the connection of a reply entry. */
uint32_t millrace_originator(const millrace_tracker* tracker, uint32_t reply);
/* Returns the connection's reply entry, or MILLRACE_NONE. */
uint32_t millrace_reply(const millrace_tracker* tracker, uint32_t id);
/* Returns the connection's key, a millrace_key_v4 or millrace_key_v6 according to the tracker's
 * family. The tracker owns the key; the pointer is valid until the connection ends. */
const void* millrace_key(const millrace_tracker* tracker, uint32_t id);
/* Returns the tick of the connection's latest packet, of either direction. */
uint32_t millrace_last_seen(const millrace_tracker* tracker, uint32_t id);
/* Returns the caller's state of a connection, valid until the connection ends. */
void* millrace_state(const millrace_tracker* tracker, uint32_t id);
/* Returns the caller's state of a reply entry, valid until the connection ends. */
void* millrace_reply_state(const millrace_tracker* tracker, uint32_t reply);

/* Ends a connection and its reply entry. Their ids may be given out again at once. */
void millrace_close(millrace_tracker* tracker, uint32_t id);
/* Ends connections that were idle for their timeout. Checks `budget` connections at most, and no
 * more than 1024. Returns true if no work is left at `now_ms`. `closed`, which may be NULL, is
 * called with each id while the connection's key and state can still be read. */
bool millrace_sweep(millrace_tracker* tracker, uint32_t now_ms, unsigned budget,
                    void (*closed)(uint32_t id, void* context), void* context);

/* Visits live connections in the order of their ids, a bounded piece at a time: checks `budget` ids
 * from `from` on and calls `visit` with each id that is live. Returns the first id of the next
 * piece, MILLRACE_NONE when no id is left. A walk begins at 0. Between pieces, and in `visit`, the
 * tracker's thread may call every function. A connection that lives through the whole walk is
 * visited exactly once; a connection that begins or ends meanwhile is visited once or not at all.
 */
uint32_t millrace_walk(const millrace_tracker* tracker, uint32_t from, size_t budget,
                       void (*visit)(uint32_t id, void* context), void* context);
/* Returns the number of live connections. */
size_t millrace_size(const millrace_tracker* tracker);
/* Returns the bytes of memory that the tracker's tables and timers take. */
size_t millrace_memory_bytes(const millrace_tracker* tracker);

#ifdef __cplusplus
}
#endif

#endif
