//go:build kafka

package readback

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// Case 37 against Apache Kafka.
func TestReadsExactlyTheCommittedRecordsOfKafkaFromEveryOffset(t *testing.T) {
	c := cluster.Up(t, "us", cluster.V44)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	topic := "readback-" + kgoUnique(t)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = adm.DeleteTopics(t.Context(), topic) }()
	const seed = 37
	t.Logf("seed %d", seed)
	want := interleave(t.Context(), t, c.Bootstrap, topic, 120, seed)
	checkEveryOffset(t.Context(), t, c.Bootstrap, topic, want)
}
