package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// readers are a consumer group that reads the orders of a, first there, and from
// some moment on in their mirror on b. It commits after each poll, as an
// application does that knows nothing of transactions of ours.
type readers struct {
	m      *mirroring
	moveAt int // after how many records

	onA, onB [mirrorPartitions][]string
	nA, nB   atomic.Int64
	finished atomic.Bool
}

func (r *readers) String() string {
	return fmt.Sprintf("%d records on a, %d on b", r.nA.Load(), r.nB.Load())
}

func (r *readers) run(ctx context.Context) error {
	err := r.read(ctx, "a", orders, &r.onA, &r.nA, func() bool { return int(r.nA.Load()) >= r.moveAt })
	if err != nil {
		return err
	}
	r.m.say("group %q has read %d records on a and leaves", readersGroup, r.nA.Load())
	began := time.Now()
	if err = r.awaitOffsets(ctx); err != nil {
		return err
	}
	r.m.say("its offsets are on b, %v later; it goes on there", time.Since(began).Round(10*time.Millisecond))
	err = r.read(ctx, "b", "a."+orders, &r.onB, &r.nB, func() bool {
		return r.m.writing.Load() == 0 && int(r.nA.Load()+r.nB.Load()) >= r.m.records/2
	})
	r.finished.Store(err == nil)
	return err
}

// read consumes as a member of the group until it is enough.
func (r *readers) read(ctx context.Context, cluster, topic string, into *[mirrorPartitions][]string, n *atomic.Int64, enough func() bool) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.m.clusters[cluster]), kgo.ConsumerGroup(readersGroup), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	for !enough() {
		polling, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		fetches := cl.PollRecords(polling, 37) // its offsets are in the middle of transactions
		cancel()
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return fmt.Errorf("group %q on %s: %w", readersGroup, cluster, e.Err)
			}
		}
		fetches.EachRecord(func(rec *kgo.Record) { into[rec.Partition] = append(into[rec.Partition], string(rec.Value)) })
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			return fmt.Errorf("group %q on %s: commit: %w", readersGroup, cluster, err)
		}
		n.Add(int64(fetches.NumRecords()))
		cl.AllowRebalance()
	}
	return nil
}

// awaitOffsets waits until the group stands on b behind as many records as it
// has read on a, in every partition.
func (r *readers) awaitOffsets(ctx context.Context) error {
	reader := readback.NewReader(r.m.clusters["b"])
	defer reader.Close()
	var moved [mirrorPartitions]int
	var failed error // at the last look
	for since := time.Now(); time.Since(since) < patience; {
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		offsets, err := r.m.adm["b"].FetchOffsets(ctx, readersGroup)
		if errors.Is(err, kerr.GroupIDNotFound) {
			continue
		}
		if failed = err; err != nil {
			continue
		}
		there := 0
		for p := range mirrorPartitions {
			o, ok := offsets.Lookup("a."+orders, int32(p))
			if !ok && len(r.onA[p]) > 0 || ok && o.At < 0 {
				continue
			}
			seen, err := reader.Partition(ctx, "a."+orders, p, 0)
			if err != nil {
				failed = err
				break
			}
			moved[p] = len(seen.Records) - len(slices.DeleteFunc(slices.Clone(seen.Records), func(rec readback.Record) bool { return rec.Offset < o.At }))
			if moved[p] > len(r.onA[p]) {
				return fmt.Errorf("group %q: on b it stands behind %d records of partition %d and has read %d", readersGroup, moved[p], p, len(r.onA[p]))
			}
			if moved[p] == len(r.onA[p]) {
				there++
			}
		}
		if there == mirrorPartitions {
			return nil
		}
	}
	return errors.Join(failed, fmt.Errorf("the offsets of group %q were not moved: on b it stands behind %v records", readersGroup, moved))
}
