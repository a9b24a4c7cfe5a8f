// Package store says what managers and agents need of the cluster's store. Real stores are in etcd and zookeeper;
// memory is one for tests; storetest tries each of them.
//
// A store has records, which are never deleted, and members that are present. Managers and agents act on what they
// see now, so a watch gives the newest state and not each change: a watch that has lost its place, or a session
// that has expired, is nothing that they need to know of. An election is a record with the leader's name: a member that finds that the
// leader is not present replaces the name, and each of a leader's writes requires that the record has not changed since.
package store

import (
	"context"
	"errors"
	"sync"
)

// Record is a value and its revision: a positive number that is greater after each write of the record.
type Record struct {
	Value    []byte
	Revision int64
}

// View is what a client knows of the store. It must not be changed. Each record is as it was at some time, and not older than in an earlier view
// of the same channel; two records need not be of the same time.
type View struct {
	Records map[string]Record
	Present map[string][]byte // members that are present: what they say of themselves
}

// Put is one record of a write. It requires that the record still has the revision; 0 means that there is no such record yet.
// Without a value the record stays as it is.
type Put struct {
	Key      string
	Revision int64
	Value    []byte
}

// ErrConflict is returned if a record had another revision, so that nothing was written.
var ErrConflict = errors.New("another write came before")

// Store is one client of a store. All methods may be called at the same time.
type Store interface {
	// Read returns a view that is not older than the call.
	Read(ctx context.Context) (View, error)

	// Watch sends a view at once and after changes. A view that the caller has not taken is replaced by the next one. While the store
	// cannot be reached, no view comes. The channel is closed when ctx ends.
	Watch(ctx context.Context) <-chan View

	// Write writes all of the records or none. If the error is not ErrConflict, then the write may have been done, or be done
	// later; only a view can tell.
	Write(ctx context.Context, puts ...Put) error

	// Present makes a member present from now on, or changes what it says of itself. The member remains present until Close,
	// or until the store has not heard of this client for the session's timeout. Once the client reaches the store again, the member is
	// present again by itself. A client has at most one member.
	Present(ctx context.Context, member string, says []byte) error

	// Close ends the session; its member is not present any more. Closing again does nothing.
	Close() error
}

// Together calls a function for 0 to count-1, several at a time: a store takes many writes in the time of one.
func Together(count int, do func(n int)) {
	const most = 32
	var all sync.WaitGroup
	turns := make(chan struct{}, most)
	for n := range count {
		turns <- struct{}{}
		all.Go(func() {
			do(n)
			<-turns
		})
	}
	all.Wait()
}

// Offer replaces the view that waits in a channel, which has room for one.
func Offer(to chan View, view View) {
	select {
	case <-to:
	default:
	}
	to <- view
}
