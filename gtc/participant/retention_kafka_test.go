//go:build kafka

package participant

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A real cluster tells both settings: Kafka's default of seven days, and what a
// topic that was written to has.
func TestKafkaRetention(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		value := "5000"
		changed, err := kadm.NewClient(k.raw).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: retentionMillis, Value: &value}}, k.topic)
		if err != nil || changed[0].Err != nil {
			t.Fatal(err, changed)
		}
		id := unique(t, "retention")
		p := k.producer(id, noTimeoutDuration)
		p.write(k.topic)
		part := prepared(t, k.drive, id, p.ref(k.c.ID))
		got, err := k.drive.Retention(t.Context(), k.c.ID)
		if err != nil || got.IDExpirationMillis != 604_800_000 || got.TopicMillis[k.topic] != 5000 {
			t.Errorf("%+v, %v: want 604800000 ms for ids and 5000 ms for %s", got, err, k.topic)
		}
		settle(t, k.drive, id, part, false)
	})
}
