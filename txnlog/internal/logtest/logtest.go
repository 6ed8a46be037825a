// Package logtest is what every txnlog.Log must do, whatever its store. The
// stores' own tests bring the target and run it.
package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Target is one empty store with at least three partitions.
type Target struct {
	// Open gives another coordinator's log on the store.
	Open func(t *testing.T) txnlog.Log
	// Hold keeps the acknowledgements of the log's appends back until release
	// is called.
	Hold func(l txnlog.Log) (release func())
	// AwaitInFlight waits until the append that is held is on its way: it
	// can then no longer be joined by another. records is how many records
	// partition 0 has when the store writes before it acknowledges.
	AwaitInFlight func(t *testing.T, records int)
	// Batches counts the batches of appends that the log has had
	// acknowledged.
	Batches func(l txnlog.Log) int64
	// Foreign counts the records that the log's claims left out because they
	// were not the owner's.
	Foreign func(l txnlog.Log) int64
	// Records are the raw records of a partition, claims and all.
	Records func(t *testing.T, partition int32) []txnlog.RawRecord
	// Inject writes one raw record, with the producer id and epoch given and
	// the sequence that the store expects.
	Inject func(t *testing.T, partition int32, r txnlog.RawRecord)
	// Compact compacts the partition and returns when it is done.
	Compact func(t *testing.T, partition int32)
}

// Run runs all tests, each on a target of its own.
func Run(t *testing.T, target func(t *testing.T) Target) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Target){
		"what one owner wrote the next one reads":            testReads,
		"a claim fences the old owner":                       testFences,
		"callbacks come once and in order":                   testOrder,
		"while one batch is in flight the next one fills":    testGroups,
		"many appends in flight reach the log":               testHeld,
		"the caller may change a value after Append":         testCallerOwnsValue,
		"tombstones are replayed":                            testTombstones,
		"partitions are apart":                               testPartitions,
		"an error of the reader ends the claim":              testReplayError,
		"a closed writer and a closed log refuse":            testClosed,
		"an impossible id is refused, what is before it not": testImpossibleID,
		"compaction loses nothing that is live":              testCompaction,
		"a record of a stranger is reported and left out":    testForeign,
		"an unknown type is left out":                        testUnknownType,
		"an unknown version of a live id refuses":            testUnknownVersion,
		"a superseded unknown version does not":              testSuperseded,
		"corruption in the middle names the offset":          testCorrupt,
		"a refused claim leaves the owner alone":             testRefusedClaimFencesNobody,
	} {
		t.Run(name, func(t *testing.T) { test(t, target(t)) })
	}
}

// patience bounds what takes a second on an idle machine.
const patience = 3 * time.Minute

// Claim claims a partition and returns the ids that it replays, each with its
// sequence number, "-" for a tombstone.
func Claim(t *testing.T, l txnlog.Log, partition int32) (txnlog.Writer, []string) {
	t.Helper()
	var got []string
	w, err := claim(t, l, partition, &got)
	if err != nil {
		t.Fatalf("claim of partition %d: %v", partition, err)
	}
	return w, got
}

func claim(t *testing.T, l txnlog.Log, partition int32, got *[]string) (txnlog.Writer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	last := int64(-1)
	return l.Claim(ctx, partition, func(e txnlog.Entry) error {
		if e.Offset <= last {
			return fmt.Errorf("offset %d came after offset %d", e.Offset, last)
		}
		last = e.Offset
		*got = append(*got, text(e.Record))
		return nil
	})
}

func text(r txnlog.Record) string {
	if r.Value == nil {
		return r.GlobalTransactionalID + "-"
	}
	return fmt.Sprintf("%s%d", r.GlobalTransactionalID, r.Value.Sequence)
}

// Put is a record of id with a sequence number.
func Put(id string, sequence int64) txnlog.Record {
	return txnlog.Record{GlobalTransactionalID: id, Value: &txnlog.GlobalTransaction{State: txnlog.StatePrepareCommit, Sequence: sequence, ClusterIDs: []string{"A", "B"}}}
}

// Append appends and waits.
func Append(t *testing.T, w txnlog.Writer, records ...txnlog.Record) error {
	t.Helper()
	done := make(chan error, 1)
	w.Append(records, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("no answer to an append within %v", patience)
		return nil
	}
}

func mustAppend(t *testing.T, w txnlog.Writer, records ...txnlog.Record) {
	t.Helper()
	if err := Append(t, w, records...); err != nil {
		t.Fatalf("append: %v", err)
	}
}

// Want compares what was replayed.
func Want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("replayed %q, want %q", got, want)
	}
}

func closeWriter(t *testing.T, w txnlog.Writer) {
	t.Helper()
	if err := w.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func testReads(t *testing.T, target Target) {
	w, got := Claim(t, target.Open(t), 0)
	Want(t, got)
	mustAppend(t, w, Put("a", 1), Put("b", 1))
	mustAppend(t, w, Put("a", 2))
	closeWriter(t, w)
	w, got = Claim(t, target.Open(t), 0)
	Want(t, got, "a1", "b1", "a2")
	mustAppend(t, w, Put("c", 1))
	_, got = Claim(t, target.Open(t), 0)
	Want(t, got, "a1", "b1", "a2", "c1")
}

func testFences(t *testing.T, target Target) {
	old, _ := Claim(t, target.Open(t), 0)
	mustAppend(t, old, Put("a", 1))
	next, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a1")
	for range 2 {
		if err := Append(t, old, Put("a", 99)); !errors.Is(err, txnlog.ErrFenced) {
			t.Fatalf("the old owner's append gives %v, want ErrFenced", err)
		}
	}
	mustAppend(t, next, Put("a", 2))
	_, got = Claim(t, target.Open(t), 0)
	Want(t, got, "a1", "a2")
}

func testOrder(t *testing.T, target Target) {
	const n = 300
	w, _ := Claim(t, target.Open(t), 0)
	var wg sync.WaitGroup
	var order []int
	wg.Add(n)
	for i := range n {
		w.Append([]txnlog.Record{Put("a", int64(i))}, func(err error) {
			if err != nil {
				t.Errorf("append %d: %v", i, err)
			}
			order = append(order, i) // callbacks come one after the other
			wg.Done()
		})
	}
	wg.Wait()
	for i := range n {
		if order[i] != i {
			t.Fatalf("callback %d came at place %d", order[i], i)
		}
	}
	_, got := Claim(t, target.Open(t), 0)
	if len(got) != n || got[0] != "a0" || got[n-1] != fmt.Sprintf("a%d", n-1) {
		t.Fatalf("replayed %d records, %v to %v", len(got), got[0], got[len(got)-1])
	}
}

func testGroups(t *testing.T, target Target) {
	const n = 50
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	mustAppend(t, w, Put("warm", 0)) // the connection is up
	before := target.Batches(l)
	release := target.Hold(l)
	var wg sync.WaitGroup
	wg.Add(n + 1)
	appendOne := func(i int) {
		w.Append([]txnlog.Record{Put("a", int64(i))}, func(err error) {
			if err != nil {
				t.Errorf("append %d: %v", i, err)
			}
			wg.Done()
		})
	}
	appendOne(0)
	target.AwaitInFlight(t, 3) // claim, warm, the one held
	for i := range n {
		appendOne(i + 1)
	}
	release()
	wg.Wait()
	if got := target.Batches(l) - before; got != 2 {
		t.Fatalf("%d appends behind one in flight made %d batches in all, want 2", n, got)
	}
}

func testHeld(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	release := target.Hold(l)
	errs := make(chan error, 3)
	for i := range 3 {
		w.Append([]txnlog.Record{Put("a", int64(i))}, func(err error) { errs <- err })
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close(context.Background()) }()
	select {
	case <-errs:
		t.Fatal("an append was answered while its acknowledgement was held")
	case <-time.After(20 * time.Millisecond):
	}
	release()
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	_, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a0", "a1", "a2")
}

func testCallerOwnsValue(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	r := Put("a", 1)
	done := make(chan error, 1)
	w.Append([]txnlog.Record{r}, func(err error) { done <- err })
	r.Value.Sequence = 2
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a1")
}

func testTombstones(t *testing.T, target Target) {
	w, _ := Claim(t, target.Open(t), 0)
	mustAppend(t, w, Put("a", 1), txnlog.Record{GlobalTransactionalID: "a"}, txnlog.Record{GlobalTransactionalID: "never seen"})
	_, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a1", "a-", "never seen-")
}

func testPartitions(t *testing.T, target Target) {
	one, two := target.Open(t), target.Open(t)
	w0, _ := Claim(t, one, 0)
	w1, _ := Claim(t, two, 1)
	mustAppend(t, w0, Put("a", 1))
	mustAppend(t, w1, Put("b", 1))
	_, got := Claim(t, two, 0)
	Want(t, got, "a1")
	mustAppend(t, w1, Put("b", 2))
	for _, p := range []int32{-1, one.Partitions()} {
		if _, err := one.Claim(t.Context(), p, nil); err == nil {
			t.Errorf("partition %d of %d was claimed", p, one.Partitions())
		}
	}
}

func testReplayError(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	mustAppend(t, w, Put("a", 1))
	mine := errors.New("mine")
	if _, err := l.Claim(t.Context(), 0, func(txnlog.Entry) error { return mine }); !errors.Is(err, mine) {
		t.Fatalf("got %v, want the reader's own error", err)
	}
}

func testClosed(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	mustAppend(t, w, Put("a", 1))
	closeWriter(t, w)
	if err := Append(t, w, Put("a", 2)); !errors.Is(err, txnlog.ErrClosed) {
		t.Fatalf("append to a closed writer gives %v, want ErrClosed", err)
	}
	closeWriter(t, w)
	w, got := Claim(t, l, 0)
	Want(t, got, "a1")
	l.Close()
	if err := Append(t, w, Put("a", 3)); !errors.Is(err, txnlog.ErrClosed) {
		t.Fatalf("append on a closed log gives %v, want ErrClosed", err)
	}
	if _, err := l.Claim(t.Context(), 0, nil); !errors.Is(err, txnlog.ErrClosed) {
		t.Fatalf("claim on a closed log gives %v, want ErrClosed", err)
	}
}

func testImpossibleID(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	release := target.Hold(l)
	errs := make(chan error, 3)
	done := func(err error) { errs <- err }
	w.Append([]txnlog.Record{Put("a", 1)}, done)
	w.Append([]txnlog.Record{Put("b", 1), Put(string(make([]byte, txnlog.MaxIDLength+1)), 1)}, done)
	w.Append([]txnlog.Record{Put("c", 1)}, done)
	release()
	if err := <-errs; err != nil {
		t.Fatalf("the append before gives %v", err)
	}
	for range 2 {
		if err := <-errs; err == nil {
			t.Fatal("an append after the impossible one, or itself, was accepted")
		}
	}
	_, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a1")
}

func testCompaction(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	for i := range int64(20) {
		mustAppend(t, w, Put("a", i), Put(fmt.Sprintf("old%d", i%3), i))
	}
	mustAppend(t, w, Put("committing", 1))
	w, _ = Claim(t, target.Open(t), 0)
	for i := range int64(20) {
		mustAppend(t, w, Put("a", 100+i))
	}
	before := len(target.Records(t, 0))
	target.Compact(t, 0)
	if after := len(target.Records(t, 0)); after >= before {
		t.Fatalf("compaction left %d of %d records", after, before)
	}
	_, got := Claim(t, target.Open(t), 0)
	last := map[string]string{}
	for _, s := range got {
		last[s[:3]] = s
	}
	if got[len(got)-1] != "a119" || last["com"] != "committing1" || last["old"] != "old119" {
		t.Fatalf("after compaction %q", got)
	}
}

// owner gives the producer id and epoch of the last claim.
func owner(t *testing.T, target Target, partition int32) (int64, int16) {
	t.Helper()
	records := target.Records(t, partition)
	for _, r := range slices.Backward(records) {
		if k, err := txnlog.DecodeKey(r.Key); err == nil && k.Type == txnlog.TypeClaim {
			return r.ProducerID, r.ProducerEpoch
		}
	}
	t.Fatalf("no claim among %d records", len(records))
	return 0, 0
}

func key(t *testing.T, id string) []byte {
	t.Helper()
	k, err := txnlog.AppendKey(nil, id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newerVersion() []byte {
	return append([]byte{0, 1}, txnlog.AppendValue(nil, Put("", 1).Value)[2:]...)
}

func testForeign(t *testing.T, target Target) {
	l := target.Open(t)
	w, _ := Claim(t, l, 0)
	mustAppend(t, w, Put("a", 1))
	pid, epoch := owner(t, target, 0)
	abort := txnlog.AppendValue(nil, &txnlog.GlobalTransaction{State: txnlog.StatePrepareAbort, Sequence: 66})
	target.Inject(t, 0, txnlog.RawRecord{ProducerID: pid + 1, ProducerEpoch: epoch, Key: key(t, "a"), Value: abort})
	target.Inject(t, 0, txnlog.RawRecord{ProducerID: -1, ProducerEpoch: -1, Key: key(t, "a"), Value: nil})
	mustAppend(t, w, Put("a", 2))
	next := target.Open(t)
	before := target.Foreign(next)
	_, got := Claim(t, next, 0)
	Want(t, got, "a1", "a2")
	if n := target.Foreign(next) - before; n != 2 {
		t.Fatalf("%d foreign records were reported, want 2", n)
	}
}

// injectAsOwner writes a raw record under the claim of a writer that has been
// closed.
func injectAsOwner(t *testing.T, target Target, k, v []byte) int64 {
	t.Helper()
	pid, epoch := owner(t, target, 0)
	target.Inject(t, 0, txnlog.RawRecord{ProducerID: pid, ProducerEpoch: epoch, Key: k, Value: v})
	records := target.Records(t, 0)
	return records[len(records)-1].Offset
}

func testUnknownType(t *testing.T, target Target) {
	w, _ := Claim(t, target.Open(t), 0)
	mustAppend(t, w, Put("a", 1))
	closeWriter(t, w)
	injectAsOwner(t, target, kbin.AppendInt16(nil, 77), []byte("of a newer version"))
	injectAsOwner(t, target, kbin.AppendInt16(nil, 77), nil)
	_, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a1")
}

func testUnknownVersion(t *testing.T, target Target) {
	w, _ := Claim(t, target.Open(t), 0)
	mustAppend(t, w, Put("a", 1))
	closeWriter(t, w)
	offset := injectAsOwner(t, target, key(t, "live"), newerVersion())
	var got []string
	_, err := claim(t, target.Open(t), 0, &got)
	unknown, ok := errors.AsType[*txnlog.UnknownVersionError](err)
	if !ok || unknown.GlobalTransactionalID != "live" || unknown.Offset != offset || unknown.Version != 1 {
		t.Fatalf("claim gives %v, want id live, offset %d, version 1", err, offset)
	}
	// An operator who has settled the id by hand deletes it.
	injectAsOwner(t, target, key(t, "live"), nil)
	_, got = Claim(t, target.Open(t), 0)
	Want(t, got, "a1", "live-")
}

func testSuperseded(t *testing.T, target Target) {
	w, _ := Claim(t, target.Open(t), 0)
	closeWriter(t, w)
	injectAsOwner(t, target, key(t, "a"), newerVersion())
	injectAsOwner(t, target, key(t, "a"), txnlog.AppendValue(nil, Put("a", 5).Value))
	_, got := Claim(t, target.Open(t), 0)
	Want(t, got, "a5")
}

func testCorrupt(t *testing.T, target Target) {
	w, _ := Claim(t, target.Open(t), 0)
	mustAppend(t, w, Put("a", 1))
	closeWriter(t, w)
	offset := injectAsOwner(t, target, key(t, "a"), []byte{0, 0, 99})
	injectAsOwner(t, target, key(t, "b"), txnlog.AppendValue(nil, Put("b", 5).Value))
	var got []string
	_, err := claim(t, target.Open(t), 0, &got)
	if corrupt, ok := errors.AsType[*txnlog.CorruptError](err); !ok || corrupt.Offset != offset || corrupt.Partition != 0 {
		t.Fatalf("claim gives %v, want corruption at offset %d", err, offset)
	}
}

func testRefusedClaimFencesNobody(t *testing.T, target Target) {
	w, _ := Claim(t, target.Open(t), 0)
	closeWriter(t, w)
	injectAsOwner(t, target, key(t, "live"), newerVersion())
	var got []string
	if _, err := claim(t, target.Open(t), 0, &got); err == nil {
		t.Fatal("the partition was not refused")
	}
	// The owner, which can read it, is still the owner.
	injectAsOwner(t, target, key(t, "live"), txnlog.AppendValue(nil, Put("live", 7).Value))
	_, got = Claim(t, target.Open(t), 0)
	Want(t, got, "live7")
}
