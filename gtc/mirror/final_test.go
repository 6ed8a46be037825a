package mirror

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// What a person has to look at ends the mirror, also deep inside another error;
// what may pass does not.
func TestOnlyWhatMayPassIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&DataLossError{Kind: LossRetention}, true},
		{&RecordError{Err: kerr.MessageTooLarge}, true},
		{&client.HeuristicError{}, true},
		{&client.FencedError{Err: kerr.ProducerFenced}, true},
		{fmt.Errorf("group: %w", kerr.FencedInstanceID), true},
		{&client.NotEnabledError{}, true},
		{&client.ClusterIDMismatchError{}, true},
		{&client.AbortedError{Cause: &client.StaleGroupError{Err: kerr.IllegalGeneration}}, false},
		{&client.UnknownOutcomeError{Asked: true, Final: true, Err: kerr.TransactionalIDNotFound}, false},
		{&client.PendingError{Err: errors.New("a cluster is away")}, false},
		{kerr.CoordinatorNotAvailable, false},
		{fmt.Errorf("%w: %s", errSession, (&client.FencedError{Err: kerr.ProducerFenced}).Error()), false},
	} {
		if got := final(fmt.Errorf("in another: %w", c.err)); got != c.want {
			t.Errorf("%v ends the mirror: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestRecordsRefusedForGood(t *testing.T) {
	l := &life{task: &task{flow: Flow{Source: "us", Target: "eu"}}}
	for code, want := range map[*kerr.Error]bool{
		kerr.MessageTooLarge: true, kerr.InvalidRecord: true, kerr.InvalidTimestamp: true, kerr.TopicAuthorizationFailed: true,
		kerr.UnknownTopicOrPartition: false, kerr.NotLeaderForPartition: false, kerr.InvalidProducerEpoch: false,
	} {
		err := l.refused(&client.AbortedError{Cause: &client.RecordError{Cluster: "eu", Topic: "us.t", Err: code}})
		var r *RecordError
		if got := errors.As(err, &r); got != want || got && (r.Topic != "us.t" || r.Flow != "us->eu") {
			t.Errorf("%v: %v", code, err)
		}
	}
}
