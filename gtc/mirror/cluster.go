package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// side is a cluster as a flow asks it questions. It neither consumes nor
// produces.
type side struct {
	alias string
	id    string // cluster id
	kgo   *kgo.Client
	adm   *kadm.Client
}

// openSide asks the cluster for its id.
func openSide(ctx context.Context, alias string, opts []kgo.Opt) (*side, error) {
	// What is asked is what is there now, and not what was there a while ago.
	cl, err := kgo.NewClient(append(opts, kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("mirror: cluster %s: %w", alias, err)
	}
	s := &side{alias: alias, kgo: cl, adm: kadm.NewClient(cl)}
	meta, err := s.adm.BrokerMetadata(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("mirror: cluster %s: ask for its id: %w", alias, err)
	case meta.Cluster == "":
		err = fmt.Errorf("mirror: cluster %s has no cluster id", alias)
	}
	if err != nil {
		cl.Close()
		return nil, err
	}
	s.id = meta.Cluster
	return s, nil
}

func (s *side) close() {
	if s != nil {
		s.kgo.Close()
	}
}

// place is one partition of one side, with what is needed to read it.
type place struct {
	topic     string
	id        kadm.TopicID
	partition int32
	leader    int32
}

// locate finds the leader of a partition.
func (s *side) locate(ctx context.Context, topic string, partition int32) (place, error) {
	topics, err := s.adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return place{}, fmt.Errorf("cluster %s: %w", s.alias, err)
	}
	d := topics[topic]
	if d.Err != nil {
		return place{}, fmt.Errorf("cluster %s, topic %s: %w", s.alias, topic, d.Err)
	}
	p, ok := d.Partitions[partition]
	if !ok {
		return place{}, fmt.Errorf("cluster %s, topic %s: %w: partition %d", s.alias, topic, kerr.UnknownTopicOrPartition, partition)
	}
	if p.Err != nil {
		return place{}, fmt.Errorf("cluster %s, partition %s-%d: %w", s.alias, topic, partition, p.Err)
	}
	return place{topic, d.ID, partition, p.Leader}, nil
}

// fetchBytes bounds one look into a log.
const fetchBytes = 1 << 20

// page is one look into a log: its committed records from an offset on.
type page struct {
	records []*kgo.Record // of the application, no control records
	next    int64         // where to look next; gaps are passed
	start   int64         // of the log
	stable  int64         // last stable offset, where committed reading ends
	high    int64         // high watermark
}

// read looks into a log at an offset, read_committed. Its own consumer would
// need a start and an end each time; a single Fetch says all.
func (s *side) read(ctx context.Context, p place, offset int64) (page, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes = 0, 1
	// The partition's limit bites and never the request's: kfake would leave
	// out which transactions are aborted.
	req.MaxBytes = math.MaxInt32
	req.IsolationLevel = 1
	req.SessionEpoch = -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = p.topic, p.id
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.partition, offset, fetchBytes
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	fail := func(err error) (page, error) {
		return page{}, fmt.Errorf("cluster %s, read %s-%d at %d: %w", s.alias, p.topic, p.partition, offset, err)
	}
	kresp, err := s.kgo.Broker(int(p.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return fail(err)
	}
	resp, ok := kresp.(*kmsg.FetchResponse)
	switch {
	case !ok:
		return fail(fmt.Errorf("an answer of type %T", kresp))
	case resp.ErrorCode != 0:
		return fail(kerr.ErrorForCode(resp.ErrorCode))
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return fail(errors.New("an answer about other partitions"))
	}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: offset, IsolationLevel: kgo.ReadCommitted(), Topic: p.topic, Partition: p.partition,
	}, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		return fail(fetched.Err)
	}
	return page{fetched.Records, next, fetched.LogStartOffset, fetched.LastStableOffset, fetched.HighWatermark}, nil
}

// scan reads from an offset up to another and calls visit for each record until
// it returns false.
func (s *side) scan(ctx context.Context, p place, from, to int64, visit func(*kgo.Record) bool) error {
	for from < to {
		pg, err := s.read(ctx, p, from)
		if err != nil {
			return err
		}
		for _, r := range pg.records {
			if r.Offset >= to || !visit(r) {
				return nil
			}
		}
		if pg.next <= from { // at the last stable offset, or compaction's gap at the end
			return nil
		}
		from = pg.next
	}
	return nil
}

// bounds are the start, the last stable offset and the end of a log.
func (s *side) bounds(ctx context.Context, p place) (start, stable, high int64, err error) {
	for _, q := range []struct {
		timestamp int64
		isolation int8
		to        *int64
	}{{-2, 0, &start}, {-1, 1, &stable}, {-1, 0, &high}} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.IsolationLevel = q.isolation
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = p.topic
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p.partition, q.timestamp
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, s.kgo)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("cluster %s, offsets of %s-%d: %w", s.alias, p.topic, p.partition, err)
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return 0, 0, 0, fmt.Errorf("cluster %s, offsets of %s-%d: an answer about other partitions", s.alias, p.topic, p.partition)
		}
		got := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return 0, 0, 0, fmt.Errorf("cluster %s, offsets of %s-%d: %w", s.alias, p.topic, p.partition, err)
		}
		*q.to = got.Offset
	}
	return start, stable, high, nil
}
