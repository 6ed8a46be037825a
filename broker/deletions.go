package broker

import (
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// deletions remembers what kfake does not: it answers DeleteRecords and keeps
// the new start of the log in memory.
type deletions struct {
	save func([]durable.Start) error // returns when it is on the disk

	mu     sync.Mutex
	starts map[partitionOf]durable.Start
}

type partitionOf struct {
	topic     [16]byte
	partition int32
}

func newDeletions(dir string) *deletions {
	d := &deletions{starts: make(map[partitionOf]durable.Start), save: func([]durable.Start) error { return nil }}
	if dir != "" {
		d.save = func(all []durable.Start) error { return durable.SaveStarts(dir, all) }
	}
	return d
}

// note changes what is known of partitions.
func (d *deletions) note(change func(map[partitionOf]durable.Start)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d.starts)
	all := make([]durable.Start, 0, len(d.starts))
	for _, s := range d.starts {
		all = append(all, s)
	}
	return d.save(all)
}

// routeDeleteRecords writes down, before kfake deletes anything, how far the
// logs go, and before the answer where they begin.
func (f *Front) routeDeleteRecords(body *kmsg.DeleteRecordsRequest) plan {
	e := f.opts.Embedded
	if e.storage.settled() != nil { // so that the logs do go as far
		return answerWith(nil)
	}
	ids := make(map[string][16]byte)
	err := e.deletions.note(func(starts map[partitionOf]durable.Start) {
		for _, t := range body.Topics {
			info := e.cluster.TopicInfo(t.Topic)
			if info == nil {
				continue
			}
			ids[t.Topic] = info.TopicID
			for _, p := range t.Partitions {
				at := partitionOf{info.TopicID, p.Partition}
				if now := e.cluster.PartitionInfo(t.Topic, p.Partition); now != nil {
					starts[at] = durable.Start{TopicID: at.topic, Partition: at.partition, Offset: starts[at].Offset, End: now.HighWatermark}
				}
			}
		}
	})
	if err != nil {
		f.opts.Fatal(err)
		return answerWith(nil)
	}
	return plan{edit: editAs(func(resp *kmsg.DeleteRecordsResponse) kmsg.Response {
		return f.deleted(ids, resp)
	})}
}

func (f *Front) deleted(ids map[string][16]byte, resp *kmsg.DeleteRecordsResponse) kmsg.Response {
	err := f.opts.Embedded.deletions.note(func(starts map[partitionOf]durable.Start) {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				at := partitionOf{ids[t.Topic], p.Partition}
				if s, ok := starts[at]; ok && p.ErrorCode == 0 {
					s.Offset = max(s.Offset, p.LowWatermark)
					starts[at] = s
				}
			}
		}
	})
	if err == nil {
		return resp
	}
	f.opts.Fatal(err)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			resp.Topics[i].Partitions[j].ErrorCode = kerr.KafkaStorageError.Code
		}
	}
	return resp
}

// routeDeleteGroups deletes the offsets of groups first: kfake forgets a group
// in memory, and finds its offsets again after a crash.
func (f *Front) routeDeleteGroups(body *kmsg.DeleteGroupsRequest) plan {
	var before []kmsg.Request
	for _, group := range body.Groups {
		info := f.opts.Embedded.cluster.GroupInfo(group)
		if info == nil || info.State != "Empty" || len(info.Commits) == 0 {
			continue
		}
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		for topic, partitions := range info.Commits {
			t := kmsg.NewOffsetDeleteRequestTopic()
			t.Topic = topic
			for partition := range partitions {
				p := kmsg.NewOffsetDeleteRequestTopicPartition()
				p.Partition = partition
				t.Partitions = append(t.Partitions, p)
			}
			req.Topics = append(req.Topics, t)
		}
		if !slices.ContainsFunc(before, func(r kmsg.Request) bool { return r.(*kmsg.OffsetDeleteRequest).Group == group }) {
			before = append(before, req)
		}
	}
	return plan{before: before}
}
