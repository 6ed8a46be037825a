package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// A request that the next kfake serves has to be thought about.
func TestEveryRequestThatIsServedHasARowInTheTableOfPromises(t *testing.T) {
	cfg, err := config.Load("", []string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="})
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := OpenEmbedded(cfg, Node{Host: "127.0.0.1", Port: 1}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	served, err := embedded.apiVersions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range served {
		if _, ok := promises[kmsg.Key(key)]; !ok {
			t.Errorf("%s (key %d) is served, and nobody has said what its answer promises", kmsg.NameForKey(key), key)
		}
	}
	for key := range promises {
		if _, ok := served[int16(key)]; !ok {
			t.Errorf("%s has a row and is not served", key.Name())
		}
	}
	if !promised(9999) {
		t.Error("a request without a row promises nothing")
	}
}
