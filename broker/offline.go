package broker

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// offline are the partitions whose files a start could not read. kfake has them,
// and takes them for new. The zero value has none.
type offline struct {
	mu sync.Mutex
	of map[partitionName]*kfake.FaultHandle
}

type partitionName struct {
	topic     string
	partition int32
}

// whatWouldServe are the requests that read or change a partition. Group offsets
// of it are elsewhere, and whole.
var whatWouldServe = []kmsg.Key{
	kmsg.Produce, kmsg.Fetch, kmsg.ShareFetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch, kmsg.DeleteRecords,
	kmsg.WriteTxnMarkers, kmsg.ElectLeaders, kmsg.AlterPartitionAssignments, kmsg.AlterReplicaLogDirs,
}

// TakeOffline keeps partitions from everybody, as Kafka does when the directory of
// a log has failed: they have no leader. Before the first client.
func (e *Embedded) TakeOffline(partitions []durable.Offline) {
	e.offline.mu.Lock()
	defer e.offline.mu.Unlock()
	e.offline.of = make(map[partitionName]*kfake.FaultHandle, len(partitions))
	for _, p := range partitions {
		fault := func(err *kerr.Error, keys ...kmsg.Key) kfake.Fault {
			return kfake.Fault{Keys: keys, Topic: p.Topic, Partitions: []int32{p.Partition}, Err: err, Count: -1}
		}
		e.offline.of[partitionName{p.Topic, p.Partition}] = e.cluster.Fault(
			fault(kerr.LeaderNotAvailable, kmsg.Metadata), fault(kerr.KafkaStorageError, whatWouldServe...))
	}
}

func (o *offline) has(topic string, partition int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[partitionName{topic, partition}] != nil
}

// forget lets a new topic of the same name be served.
func (o *offline) forget(topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, faults := range o.of {
		if p.topic == topic {
			faults.Remove()
			delete(o.of, p)
		}
	}
}

func (o *offline) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.of) == 0
}

// routeDeleteTopics ends what is said of the partitions of a topic with it.
func (f *Front) routeDeleteTopics(*kmsg.DeleteTopicsRequest) plan {
	if f.opts.Embedded.offline.none() {
		return plan{}
	}
	return plan{edit: editAs(func(resp *kmsg.DeleteTopicsResponse) kmsg.Response {
		for _, t := range resp.Topics {
			if t.ErrorCode == 0 && t.Topic != nil {
				f.opts.Embedded.offline.forget(*t.Topic)
			}
		}
		return resp
	})}
}
