package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/inspect"
)

// written is what a transaction has on one cluster, as the cluster acknowledged
// it: records by topic and partition, and group offsets.
type written struct {
	mu      sync.Mutex
	records map[string]map[int32]*stretch
	offsets map[string]offsetMap // by group
}

// stretch is the records of one partition.
type stretch struct {
	by          pair // the producer that wrote them
	first, last int64
	count       int64
}

func (w *written) record(r *kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.records == nil {
		w.records = map[string]map[int32]*stretch{}
	}
	if w.records[r.Topic] == nil {
		w.records[r.Topic] = map[int32]*stretch{}
	}
	s := w.records[r.Topic][r.Partition]
	if s == nil {
		s = &stretch{by: pair{r.ProducerID, r.ProducerEpoch}, first: r.Offset, last: r.Offset}
		w.records[r.Topic][r.Partition] = s
	}
	s.first, s.last, s.count = min(s.first, r.Offset), max(s.last, r.Offset), s.count+1
}

func (w *written) group(id string, offsets offsetMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.offsets == nil {
		w.offsets = map[string]offsetMap{}
	}
	if w.offsets[id] == nil {
		w.offsets[id] = offsetMap{}
	}
	for topic, partitions := range offsets {
		if w.offsets[id][topic] == nil {
			w.offsets[id][topic] = map[int32]kgo.EpochOffset{}
		}
		maps.Copy(w.offsets[id][topic], partitions)
	}
}

// Contradiction is one partition that does not show what was decided.
type Contradiction struct {
	Cluster   string // the name in Options.Clusters
	Topic     string
	Partition int32
	Seen      string // what it shows, for people
}

// ContradictionError says that the transaction is decided, each cluster has said
// that it ended it so, and what the partitions show is something else: somebody
// has written a marker by hand, records were deleted, or a topic was created
// anew, before the clusters were told or since. The decision stays; a person has
// to look.
type ContradictionError struct {
	Result Result
	Found  []Contradiction // by cluster, topic and partition
}

func (e *ContradictionError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client: the transaction is %v, and not everywhere to be seen so", e.Result.Outcome)
	for _, c := range e.Found {
		fmt.Fprintf(&b, "; cluster %q, %s-%d: %s", c.Cluster, c.Topic, c.Partition, c.Seen)
	}
	return b.String()
}

// errNotWrittenYet: a marker is missing, which the cluster may be about to write.
var errNotWrittenYet = errors.New("its marker is not there yet")

// contradictions compares what a cluster shows with the outcome. With strict, a
// topic that may not be read is an error, and otherwise left out.
func (w *written) contradictions(ctx context.Context, p *participant, outcome Outcome, strict bool) (found []Contradiction, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, topic := range slices.Sorted(maps.Keys(w.records)) {
		for _, partition := range slices.Sorted(maps.Keys(w.records[topic])) {
			seen, err := w.records[topic][partition].contradiction(ctx, p.raw, topic, partition, outcome)
			switch {
			case errors.Is(err, kerr.TopicAuthorizationFailed) && !strict:
			case err != nil:
				return found, err
			case seen != "":
				found = append(found, Contradiction{Cluster: p.name, Topic: topic, Partition: partition, Seen: seen})
			}
		}
	}
	if outcome != OutcomeCommitted {
		return found, nil
	}
	for _, group := range slices.Sorted(maps.Keys(w.offsets)) {
		behind, err := w.behind(ctx, p, group)
		if err != nil {
			return found, err
		}
		found = append(found, behind...)
	}
	return found, nil
}

// contradiction is empty when the partition shows the outcome.
func (s *stretch) contradiction(ctx context.Context, cl *kgo.Client, topic string, partition int32, outcome Outcome) (string, error) {
	if s.first < 0 {
		return "", nil // the cluster did not say where they are
	}
	shown, err := inspect.Read(ctx, cl, inspect.Question{
		Topic: topic, Partition: partition, ProducerID: s.by.id, From: s.first,
		Enough: func(span inspect.Span) bool { return span.MarkerOffset > s.last },
	})
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if outcome == OutcomeAborted {
			return "", nil
		}
		return fmt.Sprintf("it is gone, with %d records", s.count), nil
	}
	if err != nil {
		return "", err
	}
	there, wrong := int64(0), ""
	open := false
	for _, span := range shown.Spans {
		if span.Epoch != s.by.epoch && (span.Epoch >= 0 || shown.LogStart <= s.first) {
			continue
		}
		there += span.Records
		switch {
		case span.End == inspect.Open:
			open = true
		case outcome == OutcomeCommitted && span.End == inspect.Aborted:
			wrong = fmt.Sprintf("an abort marker at offset %d ends %d of %d records", span.MarkerOffset, span.Records, s.count)
		case outcome == OutcomeAborted && span.End == inspect.Committed:
			wrong = fmt.Sprintf("a commit marker at offset %d ends %d of %d records", span.MarkerOffset, span.Records, s.count)
		}
	}
	switch {
	case wrong != "":
		return wrong, nil
	case outcome == OutcomeCommitted && there < s.count && shown.LogStart > s.first:
		return fmt.Sprintf("%d of %d records are there: they began at offset %d, and the log begins at %d", there, s.count, s.first, shown.LogStart), nil
	case outcome == OutcomeCommitted && there < s.count:
		return fmt.Sprintf("%d of %d records are there, which were written from offset %d on: the topic was created anew, or lost them", there, s.count, s.first), nil
	case open:
		return "", fmt.Errorf("%s-%d: %w", topic, partition, errNotWrittenYet)
	}
	return "", nil
}

// behind are the offsets of a group that stand before those that were committed.
// Ones beyond are a later member's.
func (w *written) behind(ctx context.Context, p *participant, group string) (found []Contradiction, err error) {
	ours := w.offsets[group]
	stands, err := p.committed(ctx, group, ours)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	}
	for _, topic := range slices.Sorted(maps.Keys(ours)) {
		for _, partition := range slices.Sorted(maps.Keys(ours[topic])) {
			want := ours[topic][partition].Offset
			at, there := stands[topic][partition]
			if there && at.Offset >= want {
				continue
			}
			seen := fmt.Sprintf("group %q stands at %d, and %d was committed", group, at.Offset, want)
			if !there {
				seen = fmt.Sprintf("group %q has no offset, and %d was committed", group, want)
			}
			found = append(found, Contradiction{Cluster: p.name, Topic: topic, Partition: partition, Seen: seen})
		}
	}
	return found, nil
}
