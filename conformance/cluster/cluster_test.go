//go:build kafka

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// TestProfiles holds each profile to what its comment says of it.
func TestProfiles(t *testing.T) {
	tests := []struct {
		name               string
		profile            cluster.Profile
		transactionVersion int16 // finalized; 0 is absent
		initProducerID     int16 // highest version
		noTimeout          error // answer to InitProducerId v5 without timeout
	}{
		{"profile-44", cluster.V44, 2, 5, nil},
		{"profile-44-2pc", cluster.V44TwoPC, 2, 6, kerr.InvalidTransactionTimeout},
		{"profile-44-tv1", cluster.V44TV1, 1, 5, nil},
		{"profile-44-plain", cluster.V44Plain, 2, 5, kerr.InvalidTransactionTimeout},
		{"profile-40", cluster.V400, 2, 5, nil},
		{"profile-391", cluster.V391, 0, 5, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := up(t, test.name, test.profile)
			cl := client(t, c)
			if got := clusterID(t, cl); got != c.ID {
				t.Errorf("the brokers report cluster id %q, scripts/kafka %q", got, c.ID)
			}
			versions := apiVersions(t, cl)
			if got := finalized(versions, "transaction.version"); got != test.transactionVersion {
				t.Errorf("finalized transaction.version = %d, want %d", got, test.transactionVersion)
			}
			if got := maxVersion(versions, kmsg.InitProducerID); got != test.initProducerID {
				t.Errorf("highest InitProducerId = v%d, want v%d", got, test.initProducerID)
			}
			if got := initWithoutTimeout(t, cl); !errors.Is(got, test.noTimeout) {
				t.Errorf("InitProducerId without timeout: %v, want %v", got, test.noTimeout)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	c := up(t, "profile-faults", cluster.V44)
	t.Run("a killed cluster does not answer and keeps its data", func(t *testing.T) {
		cl := client(t, c)
		createTopic(t, cl, "kept")
		call(t, c.Kill)
		if answers(t, cl, time.Second) {
			t.Error("a killed cluster answers")
		}
		call(t, c.Start)
		adm := kadm.NewClient(client(t, c))
		eventually(t, func() error {
			topics, err := adm.ListTopics(t.Context())
			if err == nil && !topics.Has("kept") {
				err = fmt.Errorf("topics after the restart: %v, want %q among them", topics.Names(), "kept")
			}
			return err
		})
	})
	t.Run("a paused cluster does not answer until it is resumed", func(t *testing.T) {
		cl := client(t, c)
		if !answers(t, cl, patience) {
			t.Error("the cluster does not answer before the pause")
		}
		call(t, c.Pause)
		if answers(t, cl, time.Second) {
			t.Error("a paused cluster answers")
		}
		call(t, c.Resume)
		if !answers(t, cl, patience) {
			t.Error("the cluster does not answer after the pause")
		}
	})
	t.Run("a restored cluster has the records of its copy and goes on after them", func(t *testing.T) {
		if err := c.Restore(t.Context()); err == nil {
			t.Error("a running cluster was restored")
		}
		cl := client(t, c)
		createTopic(t, cl, "copied")
		produce(t, cl, "copied", "before the copy")
		call(t, c.Copy)
		produce(t, cl, "copied", "after the copy") // a copied cluster goes on
		call(t, c.Stop)
		call(t, c.Restore)
		call(t, c.Start)
		again := client(t, c)
		eventually(t, func() error { return endsAt(t, again, "copied", 1) })
		produce(t, again, "copied", "after the restore")
		eventually(t, func() error { return endsAt(t, again, "copied", 2) })
	})
	t.Run("a cluster without a copy is not restored", func(t *testing.T) {
		uncopied := up(t, "profile-uncopied", cluster.V44)
		call(t, uncopied.Kill)
		if err := uncopied.Restore(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no copy") {
			t.Errorf("Restore = %v, want that there is no copy", err)
		}
	})
	t.Run("up heals what a test has left stopped or paused", func(t *testing.T) {
		for _, leave := range []func(context.Context) error{c.Stop, c.Pause} {
			call(t, leave)
			if again := cluster.Up(t, c.Name, cluster.V44); *again != *c {
				t.Errorf("the cluster came back as %+v, want %+v", *again, *c)
			}
			if !answers(t, client(t, c), patience) {
				t.Error("the cluster does not answer")
			}
		}
	})
	t.Run("another profile does not get the name", func(t *testing.T) {
		if _, err := cluster.Ensure(t.Context(), c.Name, cluster.V44Plain); err == nil {
			t.Error("the name of a running cluster was given to another profile")
		}
	})
}

// up takes the cluster down again afterwards: nobody else uses these names, and
// seven clusters at once would not fit into a small machine.
func up(t *testing.T, name string, p cluster.Profile) *cluster.Cluster {
	t.Helper()
	c := cluster.Up(t, name, p)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func client(t *testing.T, c *cluster.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func call(t *testing.T, verb func(context.Context) error) {
	t.Helper()
	if err := verb(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// answers reports whether the cluster answers a request within the time.
func answers(t *testing.T, cl *kgo.Client, within time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return cl.Ping(ctx) == nil
}

func clusterID(t *testing.T, cl *kgo.Client) string {
	t.Helper()
	metadata, err := kadm.NewClient(cl).BrokerMetadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return metadata.Cluster
}

func createTopic(t *testing.T, cl *kgo.Client, topic string) {
	t.Helper()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, cl *kgo.Client, topic, value string) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func endsAt(t *testing.T, cl *kgo.Client, topic string, want int64) error {
	t.Helper()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	if err == nil {
		err = ends.Error()
	}
	if end, _ := ends.Lookup(topic, 0); err == nil && end.Offset != want {
		err = fmt.Errorf("%s ends at %d, want %d", topic, end.Offset, want)
	}
	return err
}

func apiVersions(t *testing.T, cl *kgo.Client) *kmsg.ApiVersionsResponse {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "1"
	var resp *kmsg.ApiVersionsResponse
	eventually(t, func() (err error) {
		resp, err = req.RequestWith(t.Context(), cl)
		if err == nil && resp.FinalizedFeaturesEpoch < 0 {
			err = errors.New("a broker that has just started does not know the features yet")
		}
		return err
	})
	return resp
}

// patience bounds what takes a second on an idle machine.
const patience = 3 * time.Minute

// eventually repeats f until it succeeds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func finalized(versions *kmsg.ApiVersionsResponse, feature string) int16 {
	for _, f := range versions.FinalizedFeatures {
		if f.Name == feature {
			return f.MaxVersionLevel
		}
	}
	return 0
}

func maxVersion(versions *kmsg.ApiVersionsResponse, key kmsg.Key) int16 {
	for _, k := range versions.ApiKeys {
		if k.ApiKey == key.Int16() {
			return k.MaxVersion
		}
	}
	return -1
}

func initWithoutTimeout(t *testing.T, cl *kgo.Client) error {
	t.Helper()
	id := t.Name()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, math.MaxInt32
	req.ProducerID, req.ProducerEpoch = -1, -1
	var code error
	eventually(t, func() error {
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			return err
		}
		if code = kerr.ErrorForCode(resp.ErrorCode); kerr.IsRetriable(code) {
			return code
		}
		return nil
	})
	return code
}
