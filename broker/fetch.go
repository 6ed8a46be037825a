package broker

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFetchBytes is Kafka's default of fetch.max.bytes: whatever a client asks
// for, an answer has to fit into memory.
const maxFetchBytes = 55 << 20

// leastShare is what each partition may give however many there are.
const leastShare = 64 << 10

// readCommitted is the isolation level of a fetch that sees committed records.
const readCommitted = 1

// routeFetch keeps a read_committed fetch away from a limit that kfake answers
// wrongly: when the bytes of the whole request run out inside a partition, it
// leaves that partition's list of aborted transactions out, and the consumer
// takes aborted records for committed ones. So the limit of the request is
// lifted, and drawn at each partition instead, where kfake keeps the list.
func (f *Front) routeFetch(_ *conn, req *request) plan {
	body := req.body.(*kmsg.FetchRequest)
	limit := min(body.MaxBytes, maxFetchBytes)
	if body.IsolationLevel != readCommitted {
		if limit == body.MaxBytes {
			return plan{}
		}
		body.MaxBytes = limit
		return plan{sent: body, raw: req.withBody(body)}
	}
	body.MaxBytes = math.MaxInt32
	partitions := 0
	for i := range body.Topics {
		partitions += len(body.Topics[i].Partitions)
	}
	limit = min(limit, max(maxFetchBytes/int32(max(partitions, 1)), leastShare))
	for i := range body.Topics {
		for j := range body.Topics[i].Partitions {
			p := &body.Topics[i].Partitions[j]
			p.PartitionMaxBytes = min(p.PartitionMaxBytes, limit)
		}
	}
	return plan{sent: body, raw: req.withBody(body)}
}
