package mirror

import "fmt"

// LossKind is why records of the source cannot be mirrored any more.
type LossKind string

// The kinds, as they are in the metric.
const (
	// LossRetention: the source's retention deleted records before they were
	// mirrored.
	LossRetention LossKind = "retention"
	// LossTruncation: the source lost records that were mirrored, as an
	// unclean leader election does.
	LossTruncation LossKind = "truncation"
	// LossDeleted: a topic is no longer on the source.
	LossDeleted LossKind = "topic_deleted"
	// LossRecreated: a topic of the source is another one of the same name.
	LossRecreated LossKind = "topic_recreated"
)

// DataLossError says that the source does not hold what was still to be
// mirrored. With DataLossStop it ends the mirror.
type DataLossError struct {
	Flow      string
	Kind      LossKind
	Topic     string
	Partition int32 // -1: the whole topic
	Detail    string
}

func (e *DataLossError) Error() string {
	where := e.Topic
	if e.Partition >= 0 {
		where = fmt.Sprintf("%s-%d", e.Topic, e.Partition)
	}
	return fmt.Sprintf("mirror %s: data loss on the source (%s), %s: %s; to go on without the records set %s.data.loss.policy=continue",
		e.Flow, e.Kind, where, e.Detail, e.Flow)
}

// RecordError says that the target refuses a record for good, so that its
// partition cannot be mirrored beyond it.
type RecordError struct {
	Flow  string
	Topic string // on the target
	Err   error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("mirror %s: the target refuses a record of topic %s for good: %v", e.Flow, e.Topic, e.Err)
}

// Unwrap gives the target's error.
func (e *RecordError) Unwrap() error { return e.Err }
