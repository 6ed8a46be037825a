package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// check starts a broker on what a power cut has left, and compares what it
// shows with what clients were told. now is what they had been told; then what
// they would have been told next, if anything was asked.
type check struct {
	rng       *rand.Rand
	c         *wireClient
	now, then *world
	under     *step // the request without an answer; nil when there is none
}

// startOn opens the directory as a node does, and gives a client of it.
func startOn(ctx context.Context, cfg *config.Config) (c *wireClient, stop func() error, err error) {
	var parts closers
	opts := broker.Options{Config: cfg, Node: broker.Node{Host: "127.0.0.1", Port: 1}, Now: time.Now, Log: quiet(), Fatal: func(error) {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, parts.close())
		}
	}()
	if err = openEmbedded(ctx, &opts, &parts); err != nil {
		return nil, nil, err
	}
	if err = accessControl(ctx, &opts, &parts); err != nil {
		return nil, nil, err
	}
	front, err := broker.NewFront(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	parts.add(func() error { return shutdown(front, quiet()) })
	conn, err := front.Dial(ctx, "", "")
	if err != nil {
		return nil, nil, err
	}
	parts.add(conn.Close)
	return newWireClient(conn), parts.close, nil
}

// run says what is not as it must be.
func (k *check) run() error {
	for _, id := range slices.Sorted(maps.Keys(k.then.producers)) {
		if err := k.settle(id); err != nil {
			return fmt.Errorf("producer %s: %w", id, err)
		}
	}
	shown, err := k.shown()
	if err != nil {
		return err
	}
	names := maps.Clone(k.now.facts)
	maps.Copy(names, k.then.facts)
	maps.Copy(names, shown)
	var wrong []string
	old, changed := 0, 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		is, now, then := shown[name], k.now.facts[name], k.then.facts[name]
		switch {
		case is != now && is != then:
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %q or %q", name, is, now, then))
		case now == then:
		case is == now:
			old++
		default:
			changed++
		}
	}
	if k.under != nil && k.under.ends && old > 0 && changed > 0 {
		wrong = append(wrong, fmt.Sprintf("torn: of what %q does %d are done and %d are not", k.under.name, changed, old))
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// settle looks where a producer stands, and ends what it has open in one of the
// ways that are its own to choose.
func (k *check) settle(id string) error {
	now, then := k.now.producer(id), k.then.producer(id)
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := oneRequest[*kmsg.DescribeTransactionsResponse](k.c, 0, req)
	if err != nil {
		return err
	}
	s := resp.TransactionStates[0]
	if err = kerr.ErrorForCode(s.ErrorCode); err != nil {
		if !now.known && errors.Is(err, kerr.TransactionalIDNotFound) {
			return nil
		}
		return err
	}
	mine := k.under != nil && k.under.id == id
	isNow := now.known && s.ProducerID == now.pid && s.ProducerEpoch == now.epoch
	if isThen := mine && s.ProducerID == then.pid && s.ProducerEpoch == then.epoch; !isNow && !isThen {
		return fmt.Errorf("is %d/%d, was %d/%d", s.ProducerID, s.ProducerEpoch, now.pid, now.epoch)
	}
	if open := s.State == "Ongoing"; open != now.open() && !mine {
		return fmt.Errorf("is %s, and has %v and %v", s.State, now.writes, now.offsets)
	}
	switch ended := k.under != nil && mine && k.under.ends; {
	case ended && k.under.asksEnd() && k.rng.IntN(2) == 0:
		// The client asks again, and is told what it would have been told.
		again, endErr := k.c.end(id, now.pid, now.epoch, k.under.commit)
		if endErr != nil {
			return fmt.Errorf("asked again to end: %w", endErr)
		}
		if !k.under.v4 && (again.ProducerID != then.pid || again.ProducerEpoch != then.epoch) {
			return fmt.Errorf("asked again to end: %d/%d, was to be %d/%d", again.ProducerID, again.ProducerEpoch, then.pid, then.epoch)
		}
		for fact := range k.now.facts {
			if _, ok := k.then.facts[fact]; !ok {
				return fmt.Errorf("an end takes %s away", fact)
			}
		}
		k.now = k.then
	case !ended && isNow && now.open() && k.rng.IntN(3) > 0:
		commit := k.rng.IntN(2) == 0
		if _, err := k.c.end(id, now.pid, now.epoch, commit); err != nil {
			return fmt.Errorf("ending (commit %t) what is open: %w", commit, err)
		}
		k.now.end(now, commit)
		k.then.end(then, commit)
	default:
		r, err := k.c.init(id)
		if err != nil {
			return err
		}
		if r.ProducerID == s.ProducerID && r.ProducerEpoch <= s.ProducerEpoch {
			return fmt.Errorf("epoch %d after %d", r.ProducerEpoch, s.ProducerEpoch)
		}
		k.now.end(now, false)
		k.then.end(then, false)
	}
	return nil
}

// asksEnd says that the step is an EndTxn.
func (s *step) asksEnd() bool { return strings.HasPrefix(s.name, "end ") }

// shown is all that the node shows, as facts.
func (k *check) shown() (map[string]string, error) {
	facts := make(map[string]string)
	meta, err := oneRequest[*kmsg.MetadataResponse](k.c, 7, &kmsg.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	for _, t := range meta.Topics {
		name := *t.Topic
		switch {
		case name == txnlog.Topic:
			if err := k.c.sessions(facts, len(t.Partitions)); err != nil {
				return nil, err
			}
			continue
		case strings.HasPrefix(name, "__"):
			continue
		}
		facts["topic "+name] = fmt.Sprint(len(t.Partitions))
		if name == "d" {
			low, err := k.c.start(name)
			if err != nil {
				return nil, err
			}
			if low > 0 {
				facts["start d"] = fmt.Sprint(low)
			}
			continue
		}
		for n := range t.Partitions {
			records, err := k.c.read(name, int32(n), 1)
			if err != nil {
				return nil, err
			}
			for _, r := range records {
				facts[fmt.Sprintf("record %s/%d %s", name, n, r.Value)] = "there"
			}
		}
		if err := k.c.settings(facts, kmsg.ConfigResourceTypeTopic, name, "setting of topic "+name+" "); err != nil {
			return nil, err
		}
	}
	return facts, errors.Join(
		k.c.settings(facts, kmsg.ConfigResourceTypeBroker, "", "setting "), k.c.groups(facts),
		k.c.acls(facts), k.c.users(facts), k.c.quotas(facts))
}

func (c *wireClient) settings(facts map[string]string, kind kmsg.ConfigResourceType, resource, prefix string) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, resource
	r.ConfigNames = []string{"log.retention.ms", "retention.ms", "segment.ms"}
	req.Resources = append(req.Resources, r)
	resp, err := oneRequest[*kmsg.DescribeConfigsResponse](c, 2, req)
	if err != nil {
		return err
	}
	for _, s := range resp.Resources[0].Configs {
		own := s.Source == kmsg.ConfigSourceDynamicTopicConfig || kind == kmsg.ConfigResourceTypeBroker && s.Source != kmsg.ConfigSourceDefaultConfig
		if s.Value != nil && own {
			facts[prefix+s.Name] = *s.Value
		}
	}
	return kerr.ErrorForCode(resp.Resources[0].ErrorCode)
}

func (c *wireClient) groups(facts map[string]string) error {
	list, err := oneRequest[*kmsg.ListGroupsResponse](c, 2, kmsg.NewPtrListGroupsRequest())
	if err != nil {
		return err
	}
	for _, g := range list.Groups {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = g.Group
		resp, err := oneRequest[*kmsg.OffsetFetchResponse](c, 5, req) // of all topics
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				facts[fmt.Sprintf("offset %s %s/%d", g.Group, t.Topic, p.Partition)] = fmt.Sprint(p.Offset)
			}
		}
	}
	return nil
}

func (c *wireClient) acls(facts map[string]string) error {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := oneRequest[*kmsg.DescribeACLsResponse](c, 2, req)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		facts["acl "+r.ResourceName] = "there"
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (c *wireClient) users(facts map[string]string) error {
	resp, err := oneRequest[*kmsg.DescribeUserSCRAMCredentialsResponse](c, 0, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest())
	if err != nil {
		return err
	}
	for _, u := range resp.Results {
		facts["user "+u.User] = "there"
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (c *wireClient) quotas(facts map[string]string) error {
	resp, err := oneRequest[*kmsg.DescribeClientQuotasResponse](c, 1, kmsg.NewPtrDescribeClientQuotasRequest())
	if err != nil {
		return err
	}
	for _, e := range resp.Entries {
		facts["quota "+*e.Entity[0].Name] = fmt.Sprint(e.Values[0].Value)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// sessions reads the last record of each id in the coordinator's log.
func (c *wireClient) sessions(facts map[string]string, partitions int) error {
	for n := range partitions {
		replay := &txnlog.Replay{Partition: int32(n), Entry: func(e txnlog.Entry) error {
			if e.Value != nil {
				facts["session "+e.GlobalTransactionalID] = fmt.Sprint(e.Value.GlobalEpoch)
			}
			return nil
		}, Skipped: func(error) {}}
		records, err := c.read(txnlog.Topic, int32(n), 0)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := replay.Feed(txnlog.RawRecord{
				Offset: r.Offset, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch, Key: r.Key, Value: r.Value,
			}); err != nil {
				return err
			}
		}
		if len(records) > 0 {
			if err := replay.Finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// start is the first offset of the first partition of a topic.
func (c *wireClient) start(topic string) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t, p := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -2
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := oneRequest[*kmsg.ListOffsetsResponse](c, 5, req)
	if err != nil {
		return 0, err
	}
	return resp.Topics[0].Partitions[0].Offset, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// read takes all records of a partition, control records left out.
func (c *wireClient) read(topic string, partition int32, isolation int8) (all []*kgo.Record, err error) {
	for next := int64(0); ; {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxBytes, req.IsolationLevel, req.SessionEpoch = -1, 50<<20, isolation, -1
		t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, next, 50<<20
		t.Topic, t.Partitions = topic, append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := oneRequest[*kmsg.FetchResponse](c, 11, req)
		if err != nil {
			return nil, err
		}
		answer := &resp.Topics[0].Partitions[0]
		if next < answer.LogStartOffset {
			next = answer.LogStartOffset
			continue
		}
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			return nil, fmt.Errorf("reading %s/%d from %d: %w", topic, partition, next, err)
		}
		level := kgo.ReadUncommitted()
		if isolation == 1 {
			level = kgo.ReadCommitted()
		}
		parsed, to := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset: next, Topic: topic, Partition: partition, IsolationLevel: level,
		}, answer, kgo.DefaultDecompressor(), nil)
		all = append(all, parsed.Records...)
		if parsed.Err != nil || to == next {
			return all, parsed.Err
		}
		next = to
	}
}
