package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// prepare leaves a transaction of the i-th id open on both clusters and returns
// the request for its commit.
func (s *settling) prepare(ctx context.Context, i int) (*wire.EndGlobalTxnRequest, error) {
	id := fmt.Sprintf("settle-%05d", i)
	init := wire.NewPtrInitGlobalTxnRequest()
	init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs = id, 900_000, s.ids
	init.InstanceID = [16]byte{1, byte(i), byte(i >> 8)}
	var opened *wire.InitGlobalTxnResponse
	err := again(ctx, func() (err error) {
		if opened, err = init.RequestWith(ctx, s.gtc); err == nil {
			err = refusedInit(opened)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("InitGlobalTxn: %w", err)
	}
	end := wire.NewPtrEndGlobalTxnRequest()
	end.GlobalTransactionalID, end.GlobalEpoch, end.Sequence = id, opened.GlobalEpoch, opened.Sequence
	end.Committed, end.TimeoutMillis = true, 1
	for k, cl := range s.clusters {
		pid, epoch, err := open(ctx, cl, id, int32(i%8))
		if err != nil {
			return nil, err
		}
		end.Participants = append(end.Participants, wire.EndGlobalTxnRequestParticipant{ClusterID: s.ids[k], ProducerID: pid, ProducerEpoch: epoch})
	}
	return end, nil
}

// decide asks for a commit until it is decided.
func (s *settling) decide(ctx context.Context, end *wire.EndGlobalTxnRequest) error {
	err := again(ctx, func() error {
		resp, err := end.RequestWith(ctx, s.gtc)
		if err == nil {
			err = wire.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err != nil || resp.Outcome == wire.OutcomeCommitted:
			return err
		case resp.Outcome == wire.OutcomeAborted:
			return fmt.Errorf("bench: %s was aborted: %s", end.GlobalTransactionalID, text(resp.ErrorMessage))
		}
		return errUndecided
	})
	if err != nil {
		return fmt.Errorf("EndGlobalTxn: %w", err)
	}
	return nil
}

// refusedInit is the error of an answer, with what is said of the clusters.
func refusedInit(resp *wire.InitGlobalTxnResponse) error {
	err := wire.ErrorForCode(resp.ErrorCode)
	for _, c := range resp.ClusterErrors {
		if c.ErrorCode != 0 {
			err = fmt.Errorf("%w; cluster %s: %s", err, c.ClusterID, text(c.ErrorMessage))
		}
	}
	return err
}

var errUndecided = errors.New("bench: not decided yet")

// again calls f until its error is none that passes.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || !wire.IsRetriable(err) && !errors.Is(err, errUndecided) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// open leaves one record in a transaction without timeout.
func open(ctx context.Context, cl *kgo.Client, id string, partition int32) (int64, int16, error) {
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, 2147483647
	init.ProducerID, init.ProducerEpoch = -1, -1
	p, err := init.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(p.ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("InitProducerId: %w", err)
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, p.ProducerID, p.ProducerEpoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	add.Topics = append(add.Topics, t)
	added, err := add.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(added.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("AddPartitionsToTxn: %w", err)
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.TransactionID, produce.Acks, produce.TimeoutMillis = &id, -1, 30_000
	pt, pp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	pp.Partition, pp.Records = partition, batch(p.ProducerID, p.ProducerEpoch, id)
	pt.Topic, pt.Partitions = topic, append(pt.Partitions, pp)
	produce.Topics = append(produce.Topics, pt)
	produced, err := produce.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(produced.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("writing: %w", err)
	}
	return p.ProducerID, p.ProducerEpoch, nil
}

// batch is one transactional record.
func batch(producerID int64, epoch int16, value string) []byte {
	r := kmsg.NewRecord()
	r.Value = []byte(value)
	r.Length = int32(len(r.AppendTo(nil)) - 1) // the length of 0 is one byte
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 0x10, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: producerID, ProducerEpoch: epoch, NumRecords: 1, Records: r.AppendTo(nil),
	}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

// each calls f for 0 to n-1, some at a time, and returns the first error.
func each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range preparing {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := f(ctx, int(i)); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
