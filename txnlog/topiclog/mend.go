package topiclog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Attach returns the log as it is, for an operator: the topic must be there, and its
// settings are not looked at. Nothing is claimed before TakeOut or AcceptLoss.
func Attach(ctx context.Context, options Options) (*Log, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(o.clientOpts()...)
	if err != nil {
		return nil, fmt.Errorf("topiclog: %w", err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx, o.Topic)
	if err != nil {
		return nil, fmt.Errorf("topiclog: cannot describe topic %s: %w", o.Topic, err)
	}
	detail := topics[o.Topic]
	switch {
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		return nil, fmt.Errorf("topiclog: there is no topic %s; name the home cluster's brokers", o.Topic)
	case detail.Err != nil:
		return nil, fmt.Errorf("topiclog: cannot describe topic %s: %w", o.Topic, detail.Err)
	}
	o.Partitions = int32(len(detail.Partitions))
	return &Log{o: o, writers: make(map[*writer]struct{})}, nil
}

// Verify reads a partition without claiming it and returns the reasons to refuse it,
// by their offsets. visit sees every record, those that do not count too.
func (l *Log) Verify(ctx context.Context, id int32, visit func(txnlog.RawRecord)) (doubts []error, err error) {
	p, err := newPartition(&l.o, &l.stats, id)
	if err != nil {
		return nil, err
	}
	defer p.client.Close()
	r := reader(id)
	t, err := newTail(ctx, p, r)
	if err != nil {
		return nil, err
	}
	t.visit = visit
	if err = t.readAll(ctx); err == nil {
		err = t.complete(ctx, true)
	}
	doubts = r.Doubts()
	if txnlog.Refuses(err) {
		return append(doubts, err), nil
	}
	return doubts, err
}

func reader(id int32) *txnlog.Replay {
	return &txnlog.Replay{Partition: id, Entry: func(txnlog.Entry) error { return nil }, Skipped: func(error) {}}
}

// VerifyFiles does the same for the segment files of a partition in a directory: of a
// broker that is down, or of a copy.
func VerifyFiles(dir string, id int32, visit func(txnlog.RawRecord)) (doubts []error, err error) {
	files, err := segments(dir)
	if err != nil {
		return nil, err
	}
	r := reader(id)
	c := chain{midway: true}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for len(raw) > 0 {
			l := c.follow(raw, math.MaxInt64, kgo.DefaultDecompressor())
			for _, lost := range l.lost {
				r.Lost(lost.first, lost.last, lost.reason)
			}
			for _, rec := range l.records {
				visit(rec)
				if err := r.Feed(rec); err != nil {
					return append(r.Doubts(), fmt.Errorf("%s: %w", file, err)), nil
				}
			}
			if l.damage != nil {
				return append(r.Doubts(), fmt.Errorf("%s: %w", file,
					&txnlog.CorruptError{Partition: id, Offset: l.damage.offset, Reason: l.damage.reason})), nil
			}
			raw = raw[l.bytes:]
		}
	}
	return r.Doubts(), nil
}

// segments are the files of Kafka (.log) or of the embedded broker (.dat), by their
// base offsets, which Kafka writes with leading zeros.
func segments(dir string) ([]string, error) {
	var files []string
	for _, suffix := range []string{".log", ".dat"} {
		some, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("topiclog: %s has no segment files (*.log or *.dat); name the directory of a partition, like %s-7", dir, txnlog.Topic)
	}
	base := func(file string) string {
		return strings.TrimLeft(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), "0")
	}
	slices.SortFunc(files, func(a, b string) int {
		if n := len(base(a)) - len(base(b)); n != 0 {
			return n
		}
		return strings.Compare(base(a), base(b))
	})
	return files, nil
}

// errNoDoubt says that there is nothing to be mended where an operator says so.
var errNoDoubt = errors.New("the log is not refused because of that; kafka-global-transactions log --verify shows what it is refused for")

// TakeOut gives an id whose record at offset refuses its partition a state of which
// it is not known how it ended (txnlog.TakenOut), so that the other ids are served
// again. The record is the trace. It claims the partition as a coordinator does.
func (l *Log) TakeOut(ctx context.Context, id string, offset int64, operator string) error {
	partition := txnlog.PartitionFor(id, l.o.Partitions)
	return l.mend(ctx, partition, func(doubts []error) (*batch, error) {
		for _, doubt := range doubts {
			if of, at := subject(doubt); of != id || at != offset || id == "" {
				continue
			}
			b := new(batch)
			value := txnlog.TakenOut(doubt, partition, offset, operator, l.o.Clock.Now())
			return b, b.addAll([]txnlog.Record{{GlobalTransactionalID: id, Value: value}})
		}
		return nil, fmt.Errorf("global transactional id %q, partition %d, offset %d: %w", id, partition, offset, errNoDoubt)
	})
}

// AcceptLoss lets a partition go on without a stretch that cannot be read. What it
// decided about ids that nobody knows may be presumed aborted from then on.
func (l *Log) AcceptLoss(ctx context.Context, partition int32, first, last int64, operator string) error {
	return l.mend(ctx, partition, func(doubts []error) (*batch, error) {
		for _, doubt := range doubts {
			lost, ok := errors.AsType[*txnlog.LostError](doubt)
			if !ok || lost.First != first || lost.Last != last {
				continue
			}
			b := new(batch)
			b.add(txnlog.AppendLossKey(nil, first), txnlog.AppendLoss(nil, &txnlog.Loss{
				LastOffset: last, TimestampMillis: l.o.Clock.Now().UnixMilli(), Operator: operator, Reason: lost.Reason,
			}))
			return b, nil
		}
		return nil, fmt.Errorf("partition %d, offsets %d to %d: %w", partition, first, last, errNoDoubt)
	})
}

// subject is the id and the offset that a doubt is about.
func subject(doubt error) (id string, offset int64) {
	if e, ok := errors.AsType[*txnlog.CorruptError](doubt); ok {
		return e.GlobalTransactionalID, e.Offset
	}
	if e, ok := errors.AsType[*txnlog.UnknownVersionError](doubt); ok {
		return e.GlobalTransactionalID, e.Offset
	}
	if e, ok := errors.AsType[*txnlog.ForeignRecordError](doubt); ok {
		return e.GlobalTransactionalID, e.Offset
	}
	return "", -1
}

// mend claims a partition and appends what answers one of its doubts. When none is
// answered the partition is left alone.
func (l *Log) mend(ctx context.Context, partition int32, answer func(doubts []error) (*batch, error)) error {
	if partition < 0 || partition >= l.o.Partitions {
		return fmt.Errorf("topiclog: %s has no partition %d", l.o.Topic, partition)
	}
	p, err := newPartition(&l.o, &l.stats, partition)
	if err != nil {
		return err
	}
	defer p.client.Close()
	var b *batch
	me, _, err := l.claim(ctx, p, func(txnlog.Entry) error { return nil }, func(r *txnlog.Replay) (unanswered error) {
		b, unanswered = answer(r.Doubts())
		return unanswered
	})
	if err != nil {
		return err
	}
	_, err = p.append(ctx, b.encode(me, 1, l.o.Clock.Now().UnixMilli())) // the claim was 0
	return err
}
