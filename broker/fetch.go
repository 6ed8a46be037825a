package broker

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// readCommitted is the isolation level of a fetch that sees committed records.
const readCommitted = 1

// routeFetch keeps a read_committed fetch away from a limit that kfake answers
// wrongly: when the bytes of the whole request run out inside a partition, it
// leaves that partition's list of aborted transactions out, and the consumer
// takes aborted records for committed ones. So the limit of the request is
// lifted, and drawn at each partition instead, where kfake keeps the list.
func (f *Front) routeFetch(req *request, body *kmsg.FetchRequest) plan {
	if body.IsolationLevel != readCommitted {
		return plan{}
	}
	limit := body.MaxBytes
	body.MaxBytes = math.MaxInt32
	for i := range body.Topics {
		for j := range body.Topics[i].Partitions {
			p := &body.Topics[i].Partitions[j]
			p.PartitionMaxBytes = min(p.PartitionMaxBytes, limit)
		}
	}
	return plan{sent: body, raw: req.withBody(body)}
}
