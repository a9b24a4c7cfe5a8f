// Package storetest tries what package store promises, with any store.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/store"
)

// Link is the network between a client and its store.
type Link interface {
	// Cut ends all connections, and lets none begin.
	Cut()
	// Freeze holds back all that is sent, in both directions.
	Freeze()
	// LoseAnswers throws away what the store sends.
	LoseAnswers()
	// Heal lets all through again: what was held back, too, if the connection is still there.
	Heal()
}

// Backend is the store that is tried.
type Backend interface {
	// Open returns a new client, which is closed at the end of the test, and its link.
	Open(t *testing.T) (store.Store, Link)
	// Forget makes the store forget its history of changes, if it has one.
	Forget(t *testing.T)
	// Expire waits until the session of a client with a cut link has ended.
	Expire(t *testing.T, client store.Store)
}

// Long is the time after which something that must happen has not happened.
const long = 20 * time.Second

// Run tries the store.
func Run(t *testing.T, backend Backend) {
	tests := []struct {
		name string
		try  func(*testing.T, *trial)
	}{
		{"WritesAllOrNothing", writesAllOrNothing},
		{"WatchGivesTheNewest", watchGivesTheNewest},
		{"WatchNeverGoesBack", watchNeverGoesBack},
		{"CountsWithoutLoss", countsWithoutLoss},
		{"PresenceEndsAtClose", presenceEndsAtClose},
		{"PresenceReturns", presenceReturns},
		{"WatchFindsItsPlaceAgain", watchFindsItsPlaceAgain},
		{"AnswerIsLost", answerIsLost},
		{"LateWriteOfADeposedLeader", lateWriteOfADeposedLeader},
		{"ManyRecords", manyRecords},
	}
	for n, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*long)
			t.Cleanup(cancel)
			test.try(t, &trial{backend, ctx, fmt.Sprintf("test%d/", n)})
		})
	}
}

// trial is one test, with keys of its own.
type trial struct {
	Backend
	ctx    context.Context
	prefix string
}

func (b *trial) key(name string) string { return b.prefix + name }

func (b *trial) client(t *testing.T) store.Store {
	client, _ := b.Open(t)
	return client
}

func (b *trial) write(t *testing.T, client store.Store, puts ...store.Put) {
	t.Helper()
	if err := client.Write(b.ctx, puts...); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func (b *trial) read(t *testing.T, client store.Store) store.View {
	t.Helper()
	view, err := client.Read(b.ctx)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return view
}

// tryWrite writes in less time than a test has, since no answer may come.
func (b *trial) tryWrite(client store.Store, puts ...store.Put) error {
	ctx, cancel := context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	return client.Write(ctx, puts...)
}

// await takes views until one is as it must be.
func await(t *testing.T, views <-chan store.View, what string, is func(store.View) bool) store.View {
	t.Helper()
	end := time.After(long)
	for {
		select {
		case view, ok := <-views:
			if !ok {
				t.Fatalf("the watch ended before %s", what)
			}
			if is(view) {
				return view
			}
		case <-end:
			t.Fatalf("no view in %v in which %s", long, what)
		}
	}
}

func has(key, value string) func(store.View) bool {
	return func(view store.View) bool { return string(view.Records[key].Value) == value }
}

func put(key string, revision int64, value string) store.Put {
	return store.Put{Key: key, Revision: revision, Value: []byte(value)}
}

func writesAllOrNothing(t *testing.T, b *trial) {
	client := b.client(t)
	a, c := b.key("a"), b.key("c")
	b.write(t, client, put(a, 0, "1"), put(c, 0, "1"))
	first := b.read(t, client)
	if string(first.Records[a].Value) != "1" || first.Records[a].Revision <= 0 {
		t.Fatalf("read after write: %+v", first.Records[a])
	}
	ra, rc := first.Records[a].Revision, first.Records[c].Revision
	for what, puts := range map[string][]store.Put{
		"an old revision":                     {put(c, rc, "2"), put(a, ra+1, "2")},
		"creation of what is there":           {put(c, rc, "2"), put(a, 0, "2")},
		"change of what is not there":         {put(c, rc, "2"), put(b.key("none"), ra, "2")},
		"a condition that does not hold":      {put(c, rc, "2"), {Key: a, Revision: ra + 1}},
		"a condition on what is not there":    {put(c, rc, "2"), {Key: b.key("none"), Revision: ra}},
		"a condition that there be no record": {put(c, rc, "2"), {Key: a, Revision: 0}},
	} {
		if err := client.Write(b.ctx, puts...); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if view := b.read(t, client); view.Records[c].Revision != rc || len(view.Records[b.key("none")].Value) != 0 {
		t.Errorf("a write that failed has changed something: %+v", view.Records)
	}
	b.write(t, client, put(c, rc, "3"), store.Put{Key: a, Revision: ra})
	view := b.read(t, client)
	if string(view.Records[c].Value) != "3" || view.Records[c].Revision <= rc {
		t.Errorf("written with a condition: %+v", view.Records[c])
	}
	if view.Records[a].Revision != ra {
		t.Errorf("a condition has changed its record: %+v", view.Records[a])
	}
	b.write(t, client, put(b.key("new"), 0, "x"), store.Put{Key: b.key("none"), Revision: 0})
	if _, is := b.read(t, client).Records[b.key("none")]; is {
		t.Error("a condition has made a record")
	}
}

func watchGivesTheNewest(t *testing.T, b *trial) {
	client, other := b.client(t), b.client(t)
	b.write(t, client, put(b.key("a"), 0, "before"))
	ctx, cancel := context.WithCancel(b.ctx)
	views := client.Watch(ctx)
	await(t, views, "the first record is", has(b.key("a"), "before"))
	for n := 0; n < 20; n++ { // nobody takes views meanwhile
		b.write(t, other, put(b.key(strconv.Itoa(n)), 0, "new"))
	}
	await(t, views, "the last record is", has(b.key("19"), "new"))
	cancel()
	for range views {
	}
}

func watchNeverGoesBack(t *testing.T, b *trial) {
	writer, reader := b.client(t), b.client(t)
	key := b.key("a")
	b.write(t, writer, put(key, 0, "0"))
	views := reader.Watch(b.ctx)
	go func() {
		for n := 1; n <= 200; n++ {
			view, err := writer.Read(b.ctx)
			if err == nil {
				err = writer.Write(b.ctx, put(key, view.Records[key].Revision, strconv.Itoa(n)))
			}
			if err != nil && b.ctx.Err() == nil {
				t.Errorf("write %d: %v", n, err)
			}
		}
	}()
	last := store.Record{Value: []byte("-1")}
	await(t, views, "the last value is", func(view store.View) bool {
		record := view.Records[key]
		was, _ := strconv.Atoi(string(last.Value))
		is, _ := strconv.Atoi(string(record.Value))
		if is < was || record.Revision < last.Revision || (is != was) != (record.Revision != last.Revision) {
			t.Errorf("%s at %d after %s at %d", record.Value, record.Revision, last.Value, last.Revision)
		}
		last = record
		return is == 200
	})
}

func countsWithoutLoss(t *testing.T, b *trial) {
	const clients, each = 4, 25
	key := b.key("count")
	var all sync.WaitGroup
	for range clients {
		client := b.client(t)
		all.Add(1)
		go func() {
			defer all.Done()
			for done := 0; done < each; {
				view, err := client.Read(b.ctx)
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				count, _ := strconv.Atoi(string(view.Records[key].Value))
				err = client.Write(b.ctx, put(key, view.Records[key].Revision, strconv.Itoa(count+1)))
				if err == nil {
					done++
				} else if !errors.Is(err, store.ErrConflict) {
					t.Errorf("write: %v", err)
					return
				}
			}
		}()
	}
	all.Wait()
	if got := string(b.read(t, b.client(t)).Records[key].Value); got != strconv.Itoa(clients*each) {
		t.Errorf("counted %s instead of %d", got, clients*each)
	}
}

func says(member, what string) func(store.View) bool {
	return func(view store.View) bool {
		is, ok := view.Present[member]
		return ok && string(is) == what
	}
}

func isAbsent(member string) func(store.View) bool {
	return func(view store.View) bool { _, is := view.Present[member]; return !is }
}

func presenceEndsAtClose(t *testing.T, b *trial) {
	views := b.client(t).Watch(b.ctx)
	client := b.client(t)
	for _, what := range []string{"one", "another"} {
		if err := client.Present(b.ctx, "7.1", []byte(what)); err != nil {
			t.Fatal(err)
		}
		await(t, views, "the member is present", says("7.1", what))
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	await(t, views, "the member is absent", isAbsent("7.1"))
}

func presenceReturns(t *testing.T, b *trial) {
	views := b.client(t).Watch(b.ctx)
	client, link := b.Open(t)
	own := client.Watch(b.ctx)
	if err := client.Present(b.ctx, "7.2", []byte("here")); err != nil {
		t.Fatal(err)
	}
	await(t, views, "the member is present", says("7.2", "here"))
	link.Cut()
	b.Expire(t, client)
	await(t, views, "the member is absent", isAbsent("7.2"))
	link.Heal()
	await(t, views, "the member is present again", says("7.2", "here"))
	if err := client.Present(b.ctx, "7.2", []byte("well")); err != nil {
		t.Fatal(err)
	}
	await(t, own, "the member sees itself", says("7.2", "well"))
}

func watchFindsItsPlaceAgain(t *testing.T, b *trial) {
	client, link := b.Open(t)
	other := b.client(t)
	b.write(t, other, put(b.key("0"), 0, "x"))
	views := client.Watch(b.ctx)
	await(t, views, "the first record is", has(b.key("0"), "x"))
	link.Cut()
	for n := 1; n <= 10; n++ {
		b.write(t, other, put(b.key(strconv.Itoa(n)), 0, "x"))
	}
	b.Forget(t)
	b.Expire(t, client)
	link.Heal()
	b.write(t, other, put(b.key("last"), 0, "x"))
	await(t, views, "all records are", func(view store.View) bool {
		for n := 0; n <= 10; n++ {
			if !has(b.key(strconv.Itoa(n)), "x")(view) {
				return false
			}
		}
		return has(b.key("last"), "x")(view)
	})
	b.write(t, other, put(b.key("next"), 0, "x"))
	await(t, views, "the next record is", has(b.key("next"), "x"))
}

func answerIsLost(t *testing.T, b *trial) {
	client, link := b.Open(t)
	b.write(t, client, put(b.key("before"), 0, "x"))
	link.LoseAnswers()
	err := b.tryWrite(client, put(b.key("a"), 0, "once"))
	if err == nil || errors.Is(err, store.ErrConflict) {
		t.Fatalf("without an answer: %v", err)
	}
	link.Cut()
	link.Heal()
	views := client.Watch(b.ctx)
	view := await(t, views, "the write is done", has(b.key("a"), "once"))
	if err := client.Write(b.ctx, put(b.key("a"), 0, "twice")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the same write again: %v", err)
	}
	b.write(t, client, put(b.key("a"), view.Records[b.key("a")].Revision, "next"))
}

// An old leader's write is on its way while another one takes over.
func lateWriteOfADeposedLeader(t *testing.T, b *trial) {
	old, link := b.Open(t)
	next := b.client(t)
	leader, shard := b.key("leader"), b.key("shard")
	b.write(t, old, put(leader, 0, "old"), put(shard, 0, "1"))
	view := b.read(t, old)
	link.Freeze()
	if err := b.tryWrite(old, put(shard, view.Records[shard].Revision, "late"), store.Put{Key: leader, Revision: view.Records[leader].Revision}); err == nil {
		t.Error("a write was answered by a frozen link")
	}
	b.write(t, next, put(leader, view.Records[leader].Revision, "next"))
	link.Heal()
	views := old.Watch(b.ctx)
	await(t, views, "the next leader leads", has(leader, "next"))
	if err := old.Write(b.ctx, put(shard, view.Records[shard].Revision, "later"), store.Put{Key: leader, Revision: view.Records[leader].Revision}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a deposed leader's write: %v", err)
	}
	if !has(shard, "1")(b.read(t, next)) {
		t.Error("a deposed leader has written")
	}
}

func manyRecords(t *testing.T, b *trial) {
	client := b.client(t)
	const count, together = 500, 50
	for n := 0; n < count; n += together {
		var puts []store.Put
		for m := n; m < n+together; m++ {
			puts = append(puts, put(b.key(strconv.Itoa(m)), 0, fmt.Sprintf("%01000d", m)))
		}
		b.write(t, client, puts...)
	}
	view := b.read(t, client)
	watched := await(t, client.Watch(b.ctx), "the last record is", has(b.key("499"), fmt.Sprintf("%01000d", 499)))
	for n := 0; n < count; n++ {
		if want := fmt.Sprintf("%01000d", n); !has(b.key(strconv.Itoa(n)), want)(view) || !has(b.key(strconv.Itoa(n)), want)(watched) {
			t.Fatalf("record %d is %.20q", n, view.Records[b.key(strconv.Itoa(n))].Value)
		}
	}
}
